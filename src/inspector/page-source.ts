/**
 * The page, in one text. From source it is built when it is first asked for. The build of the package replaces this
 * module by the built text, so that the package needs neither the page's sources nor their tools.
 */
export async function pageHtml(): Promise<string> {
  const { buildPage } = await import("../../scripts/build-page.ts");
  return (await buildPage()).html;
}
