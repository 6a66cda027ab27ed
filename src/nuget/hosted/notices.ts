import type { HostedNotices } from '../../server/protocol.ts';
import { parseDeprecation } from '../format/deprecation.ts';
import { createAdvisory, deleteAdvisory, listAdvisories, maxOfAccount } from './advisories.ts';
import { changeDeprecation } from './deprecations.ts';
import type { FeedContext } from './feed-context.ts';

/** Deprecation and advisories of hosted packages, for commands. */
export function packageNotices(context: FeedContext): HostedNotices {
  return {
    deprecate: (accountId, id, versions, deprecation) => {
      const change = { deprecation: deprecation ? parseDeprecation(id, deprecation) : undefined };
      return changeDeprecation(context, accountId, id, versions, change);
    },
    createAdvisory: (accountId, advisory) => createAdvisory(context, accountId, advisory),
    listAdvisories: (accountId) => listAdvisories(context.database, accountId, maxOfAccount, undefined),
    deleteAdvisory: (accountId, id) => deleteAdvisory(context, accountId, id),
  };
}
