/** The most digests or names in one statement. */
const batch = 500;

/** `items` in parts that are small enough for one statement. */
export function batches<T>(items: readonly T[]): T[][] {
  const parts: T[][] = [];
  for (let start = 0; start < items.length; start += batch) parts.push(items.slice(start, start + batch));
  return parts;
}
