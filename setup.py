"""Maps the top-level folders to one import namespace: `radixd.server` is `server/`, and so on.

setuptools cannot write this mapping with discovered sub-packages in pyproject.toml, so it lives here.
"""

from setuptools import find_packages, setup

FOLDERS = {
    "radixd.server": "server",
    "radixd.client": "client",
    "radixd.gpu_pool": "gpu_pool",
    "radixd.v1": "proto/radixd/v1",
}

packages = [
    package
    for name, folder in FOLDERS.items()
    for package in (name, *(f"{name}.{child}" for child in find_packages(folder)))
]

setup(
    package_dir=dict(FOLDERS),
    packages=packages,
    package_data={name: ["py.typed", "**/*.pyi", "web/static/*"] for name in FOLDERS},
)
