import type { AccountNames } from '../../accounts/shared-names.ts';
import type { Database } from '../../database/database.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import { claimsAmong } from '../hosted/repositories.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import type { MirroredImages } from './mirrored-images.ts';

/** The names of images in each account. */
export function imageNames(
  database: Database,
  mirrors: AccountViews<ImageMirror>,
  mirrored: MirroredImages,
): AccountNames {
  return {
    kind: 'container',
    hostedAs: async (accountId, name) => {
      const { hosted } = (await mirrors.of(accountId)).names.locate(name, undefined);
      const claims = await claimsAmong(database, accountId, hosted);
      return hosted.find((each) => claims.get(each));
    },
    mirroredAmong: async (accountId, only, limit) =>
      (await mirrored.list(accountId, limit, '', only, 0)).map(({ name }) => name),
  };
}
