"""Small models trained against the clock, with the images kept on the device."""
