import { credentialMissing } from '../../accounts/allow.ts';
import { ownerOf } from '../../accounts/owner.ts';
import { noAccount, readsHosted, type Principal } from '../../accounts/principal.ts';

/**
 * The account as which a principal reads a package: the owner of its id. A reader of mirrored content reads as no account, which
 * has no hosted packages, and only ids that are served from upstreams alone; `Unauthorized` for others.
 */
export function readerOf(
  packages: { isUpstreamOnly(accountId: number, id: string): Promise<boolean> },
  principal: Principal,
  id: string,
): number | Promise<number> {
  const owner = ownerOf(principal, 'package', id);
  if (readsHosted(principal)) return owner;
  return packages.isUpstreamOnly(owner, id).then((isUpstreamOnly) => {
    if (!isUpstreamOnly) throw credentialMissing();
    // A version that is published from now on is hosted, so this request must not find it.
    return noAccount;
  });
}
