/** A claim of which nothing is left: the name is kept from upstreams all the same. */
export interface EmptyClaim {
  name: string;
  /** Where the list goes on. */
  position: string;
  /** Milliseconds since 1970 UTC. */
  since: number;
}

/** What keeps an account from giving up a claim. */
export type ClaimObstacle = 'in use' | 'unclaimed';

/** The claims of accounts on names of one kind, of which nothing is left. */
export interface EmptyClaims {
  /** What a name that is in use still has, for messages: `versions`. */
  readonly contents: string;
  /** Up to `limit` of them, after the position `after`. */
  list(accountId: number, after: string, limit: number): Promise<EmptyClaim[]>;
  /** Gives one up; resolves to what kept it from that, if anything did. */
  release(accountId: number, name: string): Promise<ClaimObstacle | undefined>;
}
