import subprocess
import sys

import pytest

import kermit


@pytest.mark.parametrize("name", kermit.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(kermit, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Frog'"):
        kermit.Frog  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, kermit; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_canvases_know_no_tensor() -> None:
    code = "import sys, kermit.canvas; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
