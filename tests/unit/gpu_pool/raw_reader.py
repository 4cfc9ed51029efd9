"""GLM53.md's byte map once more, written from the text alone: what the pool's own tables are checked against.

A reader of plain bytes for the GLM-5.3 family (`glm-5.3`, `tiny`): it knows row and plane sizes as literals and shares
nothing with the code under test.
"""

from dataclasses import dataclass

FULL = (0, 1, 2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 66, 70, 74)


@dataclass(frozen=True)
class RawReader:
    """Byte ranges of one token's regions in a flat pool of `pages` physical pages."""

    kind: str
    pages: int
    layers: int
    full: tuple[int, ...]
    nope: int
    scales: int
    rope: int
    key: int
    page_stride: int

    def token(self, page: int, t: int) -> dict[tuple[str, int, str], tuple[int, int]]:
        """(component, layer, region) -> (first byte, one past the last) of token `t` of `page`."""
        row = self.nope + self.scales + self.rope
        latent_page, index_page = 64 * row, 64 * self.key + 64 * 4
        ranges = {}
        for layer in range(self.layers):
            if self.kind == "page_first":
                start = page * self.page_stride + layer * latent_page + t * row
            else:
                start = layer * self.pages * latent_page + page * latent_page + t * row
            ranges["latent", layer, "nope"] = (start, start + self.nope)
            ranges["latent", layer, "scale"] = (start + self.nope, start + self.nope + self.scales)
            ranges["latent", layer, "rope"] = (start + self.nope + self.scales, start + row)
        for nth, layer in enumerate(self.full):
            if self.kind == "page_first":
                start = page * self.page_stride + self.layers * latent_page + nth * index_page
            else:
                start = self.pages * (self.layers * latent_page + nth * index_page) + page * index_page
            ranges["index", layer, "key"] = (start + self.key * t, start + self.key * (t + 1))
            scale = start + 64 * self.key + 4 * t
            ranges["index", layer, "scale"] = (scale, scale + 4)
        return ranges


def reader_for(name: str, kind: str, pages: int, page_stride: int | None = None) -> RawReader:
    """The map of `glm-5.3` or `tiny` with `pages` physical pages."""
    if name == "tiny":
        return RawReader(kind, pages, 2, (0,), nope=16, scales=4, rope=12, key=16, page_stride=page_stride or 5_376)
    return RawReader(
        kind, pages, 78, FULL, nope=512, scales=16, rope=128, key=128, page_stride=page_stride or 3_452_160
    )
