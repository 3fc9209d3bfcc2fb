"""Where tokens lie, and what position adds to attention: grids, offsets, masks and the terms made of them."""
