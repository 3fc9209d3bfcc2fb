"""The subcommands of ``vit-rpe``, one module each; ``vit_rpe.cli.COMMANDS`` is their table of contents.

A command module has two functions: ``add_arguments(parser)`` declares its options on an
``argparse.ArgumentParser``, ``run(args)`` does the work and returns ``None`` or an exit status.
"""
