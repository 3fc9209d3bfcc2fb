"""Channel means and standard deviations on the 0..1 scale, over the training images of each set."""

__all__ = ["CIFAR10", "CIFAR100", "DIGITS", "FASHION_MNIST", "IMAGENET"]

DIGITS = ((0.3053,), (0.3759,))
FASHION_MNIST = ((0.2860,), (0.3530,))
CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100 = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
