"""Where a deployment can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import UnusableFolder
from tidegate.runtime.deployment import open_deployment


def test_a_folder_that_cannot_be_made_is_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no folder")
    with pytest.raises(UnusableFolder) as refused, open_deployment(file / "deployment"):
        pass
    assert refused.value.folder == str(file / "deployment")
