import type { Config } from '../../config/schema.ts';
import type { Database } from '../../database/database.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import { attacher, type AttachToImage } from '../hosted/attach.ts';
import { ImageBlobs } from '../hosted/image-blobs.ts';
import type { ContentCheck } from '../format/manifest.ts';
import { Manifests } from '../hosted/manifests.ts';
import { Referrers } from '../hosted/referrers.ts';
import { Repositories } from '../hosted/repositories.ts';
import { Uploads } from '../uploads/uploads.ts';

/** The hosted images of all accounts: the parts of the registry. */
export class Images {
  readonly repositories: Repositories;
  readonly blobs: ImageBlobs;
  readonly manifests: Manifests;
  readonly referrers: Referrers;
  readonly uploads: Uploads;
  readonly attach: AttachToImage;
  readonly examine: ContentCheck;

  /** `folder` is the identity of the data folder. Deletions can be undone for `deletedFor` milliseconds. */
  constructor(
    database: Database,
    blobs: BlobStore,
    { limits, gc }: Pick<Config, 'limits' | 'gc'>,
    now: () => number,
    folder: string,
    examine: ContentCheck,
    deletedFor: number,
  ) {
    this.examine = examine;
    this.repositories = new Repositories(database);
    this.blobs = new ImageBlobs(database, blobs, gc.grace, now);
    this.manifests = new Manifests(database, blobs, { examine, deletedFor, now });
    this.referrers = new Referrers(database, this.manifests);
    this.attach = attacher({ database, blobs, manifests: this.manifests, now });
    this.uploads = new Uploads(database, blobs, this.blobs, { limits, now, folder });
  }

  /** Waits for the uploads in progress and closes their files. */
  async close(): Promise<void> {
    await this.uploads.close();
    await this.uploads.closeQuiet();
  }
}
