/** Patterns for the setting `reserved`, and the number of further patterns that were left out. */
interface Proposal {
  patterns: string[];
  more: number;
}

const maxPatterns = 20;
/** The most names of one prefix that are proposed one by one, if the prefix is public. */
const maxSingle = 5;

/**
 * Patterns that keep `names` from upstreams: `prefix.*` for names with the same prefix up to `separator`. A name without a
 * prefix is proposed itself, and so are names whose prefix an upstream has too (`isPublic`).
 */
export async function proposeReserved(
  names: AsyncIterable<string>,
  separator: '.' | '/',
  isPublic: (prefix: string) => Promise<boolean>,
): Promise<Proposal> {
  const byPrefix = new Map<string, Set<string>>();
  for await (const name of names) {
    const end = name.indexOf(separator);
    const prefix = end < 0 ? name : name.slice(0, end + 1);
    const some = byPrefix.get(prefix) ?? new Set();
    if (some.size <= maxSingle) some.add(name);
    byPrefix.set(prefix, some);
  }
  const proposal: Proposal = { patterns: [], more: 0 };
  for (const [prefix, some] of byPrefix) {
    const isSingle = !prefix.endsWith(separator);
    const patterns = isSingle || (await isPublic(prefix)) ? [...some].slice(0, maxSingle) : [`${prefix}*`];
    if (some.size > maxSingle && patterns.length > 1) proposal.more += 1;
    for (const pattern of patterns) {
      if (proposal.patterns.length < maxPatterns) proposal.patterns.push(pattern);
      else proposal.more += 1;
    }
  }
  return proposal;
}
