import type { Principal } from '../../accounts/principal.ts';
import { fileOperation } from '../../api/framework/file.ts';
import type { AnsweredFile } from '../../http/send-file.ts';
import type { Operation } from '../../api/framework/operation.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { contentOf } from '../../storage/files/content.ts';
import { readPart } from '../format/nupkg.ts';
import { fileTypes, openFile } from '../hosted/files.ts';
import { keyOfVersion, packageKey, versionNotFound } from '../hosted/packages.ts';
import { isShared, readerOf } from '../source/reader.ts';
import type { DetailsParts } from './version-details.ts';

type Parts = Pick<DetailsParts, 'feed' | 'mirrored'>;

interface Asked {
  principal: Principal;
  owner: number;
  reader: number;
  id: string;
  version: string;
}

/** The files of one version, from what is stored. The feed itself also fetches those of upstreams. */
export function versionFileOperations(parts: Parts): Operation[] {
  const common = {
    action: 'read',
    params: { id: 'The package ID, in any letter case', version: 'The version, normalised or not' },
    subject: { kind: 'package', param: 'id', keyOf: packageKey },
  } as const;
  return [
    fileOperation({
      ...common,
      path: '/packages/:id/:version/file',
      id: 'getPackageFile',
      summary: 'Download the .nupkg of one version. A mirrored version must be stored here',
      sends: [fileTypes.nupkg],
      run: async ({ principal, owner, params }) => {
        const { id, version } = params as { id: string; version: string };
        const reader = await readerOf(parts.mirrored, principal, id);
        return nupkgOf(parts, { principal, owner, reader, id, version });
      },
    }),
    fileOperation({
      ...common,
      path: '/packages/:id/:version/icon',
      id: 'getPackageIcon',
      summary: 'Get the icon in the package of one version. A mirrored version must be stored here',
      sends: ['image/png', 'image/jpeg'],
      run: async ({ principal, owner, params }) => {
        const { id, version } = params as { id: string; version: string };
        const reader = await readerOf(parts.mirrored, principal, id);
        return iconOf(parts, { principal, owner, reader, id, version });
      },
    }),
  ];
}

async function nupkgOf(parts: Parts, asked: Asked): Promise<AnsweredFile> {
  const { feed } = parts;
  const { reader, id, version } = asked;
  const key = keyOfVersion(version);
  if (key === undefined) throw versionNotFound(id, version);
  const subject = packageKey(id);
  const file = {
    type: fileTypes.nupkg,
    name: `${subject}.${key}.nupkg`,
    download: { kind: 'package', subject, version: key },
  } as const;
  const hosted = await openFile(feed, reader, id, key, 'nupkg');
  if (hosted) return { content: hosted.content, ...file };
  const nupkg = await mirroredNupkg(parts, asked, key);
  if (!nupkg) throw versionNotFound(id, version);
  return { content: await feed.blobs.open(nupkg.digest, nupkg.size), ...file };
}

/** Throws `Denied` for a version whose content a policy refuses. */
async function mirroredNupkg({ mirrored }: Parts, { principal, owner, id }: Asked, key: string | undefined) {
  return key === undefined || isShared(principal, owner) ? undefined : mirrored.nupkg(owner, id, key);
}

async function iconOf(parts: Parts, asked: Asked): Promise<AnsweredFile> {
  const { feed } = parts;
  const { reader, id, version } = asked;
  const hosted = await openFile(feed, reader, id, version, 'icon');
  if (hosted) return hosted;
  const nupkg = await mirroredNupkg(parts, asked, keyOfVersion(version));
  const icon = nupkg && (await readPart(() => feed.blobs.open(nupkg.digest, nupkg.size), 'icon').catch(unlessWrong));
  if (!icon?.imageType) throw new DomainError('NotFound', 'This version is not here, or has no icon.');
  return { content: contentOf(icon.bytes), type: icon.imageType };
}

/** An icon of an upstream's package may be anything. */
function unlessWrong(error: unknown): undefined {
  if (!isDomainError(error)) throw error;
}
