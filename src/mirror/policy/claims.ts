import { DomainError } from '../../runtime/errors.ts';

/** A claim on a name that has no hosted content any more. The name is still kept from upstreams. */
export interface EmptyClaim {
  name: string;
  /** The cursor for the next page of the list. */
  position: string;
  /** Milliseconds since 1970 UTC. */
  since: number;
}

/** Why a claim cannot be released. */
export type ClaimObstacle = 'in use' | 'unclaimed' | 'deleted';

/** The accounts' claims on names of one kind that have no hosted content any more. */
export interface EmptyClaims {
  /** What a name that is in use still has, for messages: `versions`. */
  readonly contents: string;
  /** Up to `limit` of them, after the position `after`. */
  list(accountId: number, after: string, limit: number): Promise<EmptyClaim[]>;
  /** Releases a claim. Resolves to the reason if that is not possible, else to undefined. */
  release(accountId: number, name: string): Promise<ClaimObstacle | undefined>;
}

/** Releases a claim on a name of this kind; throws `NotFound` or `Invalid`. */
export async function releaseClaim(kind: string, claims: EmptyClaims, accountId: number, name: string): Promise<void> {
  const obstacle = await claims.release(accountId, name);
  const named = `${kind} "${name.slice(0, 255)}"`;
  if (obstacle === 'unclaimed') throw new DomainError('NotFound', `This account claims no ${named}.`);
  if (obstacle === 'deleted') {
    throw new DomainError(
      'Invalid',
      `The ${named} has deleted ${claims.contents} that can be restored. Delete them for good first (/v1/deleted), then release the name.`,
    );
  }
  if (obstacle === undefined) return;
  throw new DomainError(
    'Invalid',
    `The ${named} still has ${claims.contents}. Delete them first, then release the name.`,
  );
}
