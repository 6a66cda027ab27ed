/** The source of an answer: the account's hosted content, or one of the outcomes of the mirror. */
export type Served = 'hosted' | 'hit' | 'stale' | 'miss' | 'passed' | 'revalidated' | 'withdrawn';

const values: Record<Served, string> = {
  hosted: 'entrepot; hit; detail=hosted',
  hit: 'entrepot; hit',
  stale: 'entrepot; hit; detail=stale',
  miss: 'entrepot; fwd=miss; stored',
  passed: 'entrepot; fwd=miss',
  revalidated: 'entrepot; fwd=stale',
  withdrawn: 'entrepot; hit; detail=withdrawn',
};

/** The `Cache-Status` of an answer (RFC 9211). */
export function cacheStatus(served: Served): { 'Cache-Status': string } {
  return { 'Cache-Status': values[served] };
}
