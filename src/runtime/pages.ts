/**
 * The pages of a list that is read in the order of a key: `read` resolves to the rows after a key, `size` at most. Ends with a page that
 * is shorter. No page is empty.
 */
export async function* pagesOf<Row, Key>(
  first: Key,
  size: number,
  read: (after: Key) => Promise<readonly Row[]>,
  keyOf: (row: Row) => Key,
): AsyncGenerator<readonly Row[]> {
  for (let after = first; ;) {
    const rows = await read(after);
    if (rows.length > 0) yield rows;
    if (rows.length < size) return;
    after = keyOf(rows.at(-1)!);
  }
}
