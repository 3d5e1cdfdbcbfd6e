import { fileURLToPath } from "node:url";
import ts from "typescript";
import { compilerOptions, entryFiles } from "./api.ts";

/*
 * Finds exported names, and functions among their members, without a docstring: `npm run check -- house`. A member that is
 * a value may speak for itself, as `run_id` does.
 */

/**
 * The names that users of these entries see, and that have no docstring.
 *
 * @param files The source file of each entry.
 */
export function undocumented(files: readonly string[], options: ts.CompilerOptions, host?: ts.CompilerHost): string[] {
  const program = ts.createProgram(files, options, host);
  const checker = program.getTypeChecker();
  const isSilent = (symbol: ts.Symbol | undefined): boolean =>
    symbol !== undefined && symbol.getDocumentationComment(checker).length === 0;
  const found = new Set<string>();
  for (const file of files) {
    const source = program.getSourceFile(file);
    const module = source && checker.getSymbolAtLocation(source);
    if (module === undefined) throw new Error(`${file} is no module.`);
    for (const exported of checker.getExportsOfModule(module)) {
      const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0;
      const symbol = isAlias ? checker.getAliasedSymbol(exported) : exported;
      if (isSilent(symbol) && isSilent(exported)) found.add(exported.name);
      for (const member of (symbol.declarations ?? []).flatMap(membersOf)) {
        const name = checker.getSymbolAtLocation(member.name);
        const isFunction = checker.getTypeAtLocation(member).getNonNullableType().getCallSignatures().length > 0;
        if (isFunction && isSilent(name)) found.add(`${exported.name}.${member.name.getText()}`);
      }
    }
  }
  return [...found].sort();
}

/** The members that a user of an interface or a class can call or read. */
function membersOf(declaration: ts.Declaration): readonly (ts.Declaration & { readonly name: ts.PropertyName })[] {
  const isOwn = !declaration.getSourceFile().isDeclarationFile;
  if (!isOwn || !(ts.isInterfaceDeclaration(declaration) || ts.isClassDeclaration(declaration))) return [];
  const members: readonly (ts.TypeElement | ts.ClassElement)[] = [...declaration.members];
  return members.filter((one): one is typeof one & { readonly name: ts.PropertyName } => {
    const isHidden = (ts.getCombinedModifierFlags(one) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) !== 0;
    return one.name !== undefined && (ts.isIdentifier(one.name) || ts.isStringLiteral(one.name)) && !isHidden;
  });
}

function main(): void {
  const files = entryFiles().map(([, file]) => file);
  for (const name of undocumented(files, compilerOptions())) {
    console.log(`${name} has no docstring`);
    process.exitCode = 1;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
