"""Find the packages, two of which are in folders with shorter names; all else is in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = {"streamsvm": "streamsvm", "streamsvm_converters": "converters", "streamsvm_cli": "cli"}
inner = [f"{package}.{name}" for package, folder in FOLDERS.items() for name in find_packages(folder)]

setup(package_dir=FOLDERS, packages=[*FOLDERS, *inner])
