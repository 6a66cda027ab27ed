import { credentialMissing, type Action } from '../../accounts/allow.ts';
import { ownerOf } from '../../accounts/owner.ts';
import { noAccount, readsHosted, type Principal } from '../../accounts/principal.ts';

interface UpstreamIds {
  isUpstreamOnly(accountId: number, id: string): Promise<boolean>;
}

/**
 * The account as which a principal reads a package: the owner of its id. A reader of mirrored content reads as no account, which
 * has no hosted packages, and only ids that are served from upstreams alone; `Unauthorized` for others.
 */
export function readerOf(
  packages: UpstreamIds,
  principal: Principal,
  id: string,
  action: Action = 'read',
): number | Promise<number> {
  const owner = ownerOf(principal, 'package', id, action);
  return readsHosted(principal) ? owner : mirroredReader(packages, owner, id);
}

/** Whether a principal reads a name of `owner` because another account shares it, which shares nothing from its upstreams. */
export function isShared({ accountId }: Principal, owner: number): boolean {
  return owner !== accountId && owner !== noAccount;
}

async function mirroredReader(packages: UpstreamIds, owner: number | Promise<number>, id: string): Promise<number> {
  if (!(await packages.isUpstreamOnly(await owner, id))) throw credentialMissing();
  // A version that is published from now on is hosted, so this request must not find it.
  return noAccount;
}
