import ts from "typescript";

/** A host for the compiler whose only files are these: path → text. */
export function memoryHost(files: Readonly<Record<string, string>>): ts.CompilerHost {
  return {
    fileExists: (path) => files[path] !== undefined,
    getCanonicalFileName: (path) => path,
    getCurrentDirectory: () => "/",
    getDefaultLibFileName: () => "lib.d.ts",
    getNewLine: () => "\n",
    getSourceFile: (path, target) => {
      const text = files[path];
      return text === undefined ? undefined : ts.createSourceFile(path, text, target, true);
    },
    readFile: (path) => files[path],
    useCaseSensitiveFileNames: () => true,
    writeFile: () => undefined,
  };
}
