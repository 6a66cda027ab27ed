/** A claim on a name that has no hosted content any more. The name is still kept from upstreams. */
export interface EmptyClaim {
  name: string;
  /** The cursor for the next page of the list. */
  position: string;
  /** Milliseconds since 1970 UTC. */
  since: number;
}

/** Why a claim cannot be released. */
export type ClaimObstacle = 'in use' | 'unclaimed';

/** The accounts' claims on names of one kind that have no hosted content any more. */
export interface EmptyClaims {
  /** What a name that is in use still has, for messages: `versions`. */
  readonly contents: string;
  /** Up to `limit` of them, after the position `after`. */
  list(accountId: number, after: string, limit: number): Promise<EmptyClaim[]>;
  /** Releases a claim. Resolves to the reason if that is not possible, else to undefined. */
  release(accountId: number, name: string): Promise<ClaimObstacle | undefined>;
}
