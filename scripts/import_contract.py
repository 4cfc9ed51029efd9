"""An import-linter contract that lists what a package may import, where the built-in ones list what it may not."""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def covers(package: str, module: str) -> bool:
    """Say whether `module` is `package` or lies inside it."""
    return module == package or module.startswith(f"{package}.")


class OnlyContract(Contract):
    """Each of `modules`, with all inside it, imports itself, the standard library and `may_import`, and nothing else.

    Only direct imports count: what an allowed module imports in turn is the business of that module's contract.
    """

    type_name = "only"

    modules = fields.ListField(subfield=fields.StringField())
    may_import = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every import that the lists do not cover; a module named here that is gone is a mistake too."""
        breaches = []
        for package in self.modules:
            if package not in graph.modules:
                raise ValueError(f"module '{package}' does not exist; correct its name in pyproject.toml")
            allowed = (package, *self.may_import, *sys.stdlib_module_names)
            for importer in sorted({package} | graph.find_descendants(package)):
                breaches += [
                    (importer, imported)
                    for imported in sorted(graph.find_modules_directly_imported_by(importer))
                    if not any(covers(name, imported) for name in allowed)
                ]
        return ContractCheck(kept=not breaches, metadata={"breaches": breaches})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line for each import that is not allowed."""
        for importer, imported in check.metadata["breaches"]:
            output.print_error(f"{importer} imports {imported}")
        output.new_line()
