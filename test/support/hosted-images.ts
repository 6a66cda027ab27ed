import type { ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { mediaTypes } from '../../src/oci/format/manifest.ts';
import { ImageBlobs } from '../../src/oci/hosted/image-blobs.ts';
import { Manifests, type PushedManifest, type SentManifest } from '../../src/oci/hosted/manifests.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { testClock } from './clock.ts';
import { openStore } from './store.ts';

/** When the clock of hosted images starts, in milliseconds since 1970. */
export const hostedStart = 1_700_000_000_000;

/** The account of hosted images. */
const hostedAccount = 1;

export interface HostedImage {
  bytes: Buffer;
  digest: Digest;
  size: number;
}

/** The bytes of a document with these fields, as a descriptor refers to it. */
export function hostedDocument(fields: object): HostedImage {
  const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, ...fields }));
  return { bytes, digest: digestOf(bytes), size: bytes.length };
}

/** The parts of a registry that store images, on a clock that stands still. */
export async function openHostedImages(t: ExecutionContext, dialect: Dialect = 'sqlite', deletedFor = 0) {
  const clock = testClock(hostedStart);
  const store = await openStore(t, dialect, clock.time);
  const { database, blobs } = store;
  const examined: [name: string, digests: readonly Digest[]][] = [];
  const examine = (name: string, digests: readonly Digest[]) => {
    examined.push([name, digests]);
    return Promise.resolve();
  };
  const images = new ImageBlobs(database, blobs, 1000, clock.time);
  const manifests = new Manifests(database, blobs, { examine, deletedFor, now: clock.time });

  /** Pushes a blob with this text. */
  const blob = async (name: string, text: string, account = hostedAccount) => {
    const { staged, digest } = await blobs.stageBytes(Buffer.from(text));
    await images.add(account, name, staged, digest);
    return { mediaType: 'application/x', digest, size: text.length };
  };
  /** Pushes a document under these tags. */
  const push = (
    name: string,
    { bytes }: Pick<HostedImage, 'bytes'>,
    tags: readonly string[] = [],
    more: Partial<SentManifest> = {},
    account = hostedAccount,
  ): Promise<PushedManifest> =>
    manifests.push(account, name, { tags, digest: undefined, bytes, contentType: undefined, ...more });
  /** Pushes an image of a config and layers with these texts. */
  const image = async (
    name: string,
    tags: readonly string[],
    layers: readonly string[],
    more: object = {},
    account = hostedAccount,
  ) => {
    const config = await blob(name, '{}', account);
    const pushed = [];
    for (const each of layers) pushed.push(await blob(name, each, account));
    const document = hostedDocument({ mediaType: mediaTypes.image, config, layers: pushed, ...more });
    await push(name, document, tags, {}, account);
    return document;
  };
  /** Pushes an index of images. */
  const index = async (name: string, tags: readonly string[], children: readonly HostedImage[], more: object = {}) => {
    const document = hostedDocument({
      mediaType: mediaTypes.index,
      manifests: children.map(({ digest, size }) => ({ mediaType: mediaTypes.image, digest, size })),
      ...more,
    });
    await push(name, document, tags);
    return document;
  };
  /** The rows of a statement, as plain objects. */
  const rows = async (sql: string, values: (string | number)[] = []) =>
    (await database.select(sql, values)).map((each) => ({ ...each }));
  /** Runs a statement. */
  const change = (sql: string, values: (string | number)[] = []) => database.transaction((tx) => tx.run(sql, values));
  /** Sets what the account keeps and freezes. */
  const rule = (keep: string[], freeze: string[] = []) =>
    database.transaction(async (tx) => {
      await tx.run('DELETE FROM permanence WHERE account_id = ?', [hostedAccount]);
      const rules = { freeze: { images: freeze }, keep: { packages: [], images: keep } };
      await tx.insertNew('permanence', [{ account_id: hostedAccount, rules: JSON.stringify(rules), changed_at: 0 }]);
    });
  /** The numbers of a repository: tags, manifests, bytes. */
  const counts = async (name: string) => {
    const sql = 'SELECT tag_count, manifest_count, size_bytes FROM repositories WHERE account_id = ? AND name = ?';
    const [row] = await rows(sql, [hostedAccount, name]);
    return row && [row['tag_count'], row['manifest_count'], row['size_bytes']];
  };
  return { ...store, clock, images, manifests, examined, blob, push, image, index, rows, change, rule, counts };
}
