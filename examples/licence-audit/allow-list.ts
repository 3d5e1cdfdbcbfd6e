/** Licences that need no question. Weak copyleft such as MPL-2.0 is left out on purpose: the user decides. */
export const ALLOWED: readonly string[] = [
  "0BSD",
  "Apache-2.0",
  "BSD-2-Clause",
  "BSD-3-Clause",
  "CC0-1.0",
  "ISC",
  "MIT",
  "Unlicense",
];
