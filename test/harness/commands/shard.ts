/* The process of `shards.ts`: tries a range of seeds in chunks, and reports what each has found. */
const [module = "", name = "", ...numbers] = process.argv.slice(2);
const [from = 0, count = 0, chunk = count] = numbers.map(Number);
const { [name]: tried } = (await import(module)) as Readonly<
  Record<string, (from: number, count: number) => Promise<unknown>>
>;
if (tried === undefined) throw new Error(`${module} exports no ${name}.`);
for (let done = 0; done < count; done += chunk) process.send?.(await tried(from + done, Math.min(chunk, count - done)));
process.disconnect();
