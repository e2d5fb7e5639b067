/** Lists that the service gives in pages: followed to their end. */
export interface PageQuery {
  page_size: number;
  page_token?: string;
}

const PAGE_SIZE = 1000;

/** Return the entries of all pages; `load` asks for one of them. */
export async function everyPage<P extends { next_page_token: string | null }, T>(
  load: (query: PageQuery) => Promise<P>,
  entriesOf: (page: P) => T[],
): Promise<T[]> {
  const entries: T[] = [];
  let token: string | null = null;
  do {
    const page: P = await load({
      page_size: PAGE_SIZE,
      ...(token ? { page_token: token } : {}),
    });
    entries.push(...entriesOf(page));
    token = page.next_page_token;
  } while (token);
  return entries;
}
