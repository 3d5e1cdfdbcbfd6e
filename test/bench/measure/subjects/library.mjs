/** The library as it was built, or another build of it. */
export const library = process.env.CADENZA_ENTRY ?? new URL("../../../../dist/index.js", import.meta.url).href;
