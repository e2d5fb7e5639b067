/** Lists that the service gives in pages: followed to their end. */
interface PageOf<T> {
  entries: T[];
  next: string | null;
}

/** Return the entries of all pages; `load` asks for the one with a token, undefined for the first. */
export async function everyPage<T>(load: (token: string | undefined) => Promise<PageOf<T>>): Promise<T[]> {
  const entries: T[] = [];
  let token: string | undefined;
  do {
    const page = await load(token);
    entries.push(...page.entries);
    token = page.next ?? undefined;
  } while (token);
  return entries;
}
