import type { Migration } from '../migrate.ts';
import { accounts } from './001-accounts.ts';
import { blobs } from './002-blobs.ts';
import { jobs } from './007-jobs.ts';
import { revisions } from './008-revisions.ts';
import { metadata } from './009-metadata.ts';
import { blobStates } from './010-blob-states.ts';
import { mirror } from './005-mirror.ts';
import { operate } from './012-operate.ts';
import { probes } from './020-probes.ts';
import { packages } from './003-packages.ts';
import { repositories } from './004-repositories.ts';
import { longVersions } from './014-long-versions.ts';
import { history } from './015-history.ts';
import { finishedUploads } from './019-finished-uploads.ts';
import { storageIdentity } from './016-storage-identity.ts';
import { search } from './018-search.ts';
import { tokenPatterns } from './011-token-patterns.ts';
import { uploadBytes } from './013-upload-bytes.ts';
import { usage } from './006-usage.ts';

/** Every migration, in order. Add new ones at the end; never change a released one. */
export const migrations: readonly Migration[] = [
  ...accounts,
  ...blobs,
  ...packages,
  ...repositories,
  ...mirror,
  ...usage,
  ...jobs,
  ...revisions,
  ...metadata,
  ...blobStates,
  ...tokenPatterns,
  ...operate,
  ...uploadBytes,
  ...longVersions,
  ...history,
  ...finishedUploads,
  ...probes,
  ...storageIdentity,
  ...search,
];
