/** Patterns for the setting `reserved`, and how many more there would be. */
export interface Proposal {
  patterns: string[];
  more: number;
}

const mostPatterns = 20;
/** Names of one prefix that are proposed singly where the prefix is a public one. */
const mostSingle = 5;

/**
 * Patterns that keep `names` from upstreams: `prefix.*` for those that begin alike up to `separator`, and the name itself
 * where it has no prefix, or where `isPublic` says that an upstream has names of that prefix too.
 */
export async function proposeReserved(
  names: AsyncIterable<string>,
  separator: '.' | '/',
  isPublic: (prefix: string) => Promise<boolean>,
): Promise<Proposal> {
  const byPrefix = new Map<string, string[]>();
  for await (const name of names) {
    const end = name.indexOf(separator);
    const prefix = end < 0 ? name : name.slice(0, end + 1);
    const some = byPrefix.get(prefix) ?? [];
    if (some.length <= mostSingle) some.push(name);
    byPrefix.set(prefix, some);
  }
  const proposal: Proposal = { patterns: [], more: 0 };
  for (const [prefix, some] of byPrefix) {
    const isSingle = !prefix.endsWith(separator);
    const patterns = isSingle || (await isPublic(prefix)) ? some.slice(0, mostSingle) : [`${prefix}*`];
    if (some.length > mostSingle && patterns.length > 1) proposal.more += 1;
    for (const pattern of patterns) {
      if (proposal.patterns.length < mostPatterns) proposal.patterns.push(pattern);
      else proposal.more += 1;
    }
  }
  return proposal;
}
