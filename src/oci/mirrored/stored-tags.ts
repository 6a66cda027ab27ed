import type { Database } from '../../database/database.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import type { StoredNames } from '../../mirror/policy/stored-names.ts';
import { claimsAmong } from '../hosted/repositories.ts';
import type { ImageMirror } from './image-mirror.ts';
import { listedName } from './upstream-repository.ts';

/** Images of upstreams with stored tags. */
export function storedTags(database: Database, mirrors: AccountViews<ImageMirror>): StoredNames {
  return {
    kind: 'container',
    entryKind: 'manifest',
    contentKind: 'manifest',
    hasVersions: false,
    upstreams: async (accountId) => (await mirrors.of(accountId)).upstreams,
    shownName: (upstream, name) => listedName({ upstream, name }),
    find: async (accountId, upstream, { name, reference }) => {
      const mirror = await mirrors.of(accountId);
      const { place, hosted } = mirror.names.locate(listedName({ upstream, name }), undefined);
      if (!place) return undefined;
      const claims = await claimsAmong(database, accountId, hosted);
      if (hosted.some((each) => claims.get(each))) return undefined;
      const shown = mirror.nameOf(place);
      return { name: shown, asking: shown, references: async () => [reference] };
    },
  };
}
