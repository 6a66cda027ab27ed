import type { Migration } from '../migrate.ts';
import { accounts } from './001-accounts.ts';
import { blobs } from './002-blobs.ts';
import { packages } from './003-packages.ts';
import { repositories } from './004-repositories.ts';
import { mirror } from './005-mirror.ts';
import { usageMigrations } from './006-usage.ts';
import { jobs } from './007-jobs.ts';
import { revisions } from './008-revisions.ts';
import { metadata } from './009-metadata.ts';
import { blobStates } from './010-blob-states.ts';
import { tokenPatterns } from './011-token-patterns.ts';
import { operate } from './012-operate.ts';
import { uploadBytes } from './013-upload-bytes.ts';
import { longVersions } from './014-long-versions.ts';
import { historyMigrations } from './015-history.ts';
import { historyContent } from './046-history-content.ts';
import { storageIdentity } from './016-storage-identity.ts';
import { finishedUploads } from './017-finished-uploads.ts';
import { search } from './018-search.ts';
import { probes } from './019-probes.ts';
import { events } from './020-events.ts';
import { webhooks } from './021-webhooks.ts';
import { sessions } from './022-sessions.ts';
import { storageHolds } from './023-storage-holds.ts';
import { names } from './024-names.ts';
import { identity } from './025-identity.ts';
import { noticeMigrations } from './026-notices.ts';
import { prefetchRuns } from './027-prefetch-runs.ts';
import { instances } from './028-instances.ts';
import { counts } from './030-counts.ts';
import { bounds } from './033-bounds.ts';
import { endsOfAccess } from './035-ends-of-access.ts';
import { activeStorageMigrations } from './036-active-storage.ts';
import { processes } from './037-processes.ts';
import { newestTags } from './039-newest-tags.ts';
import { failedRequests } from './040-failed-requests.ts';
import { tokenUses } from './041-token-uses.ts';
import { deprecatedPackages } from './042-deprecated-packages.ts';
import { largest } from './043-largest.ts';
import { upstreamSamples } from './044-upstream-samples.ts';
import { peopleMigrations } from './038-people.ts';
import { policies } from './047-policies.ts';
import { historyKinds } from './048-history-kinds.ts';
import { webhookNames } from './049-webhook-names.ts';
import { refusedForms } from './050-refused-forms.ts';
import { withdrawn } from './051-withdrawn.ts';
import { knownBadMigrations } from './052-known-bad.ts';
import { policyReleases } from './053-policy-releases.ts';
import { waiverMigrations } from './054-waivers.ts';
import { bundleMigrations } from './055-bundles.ts';
import { bundleRuns } from './056-bundle-runs.ts';
import { bundleRevocations } from './057-bundle-revocations.ts';
import { importMigrations } from './058-imports.ts';
import { takeoverMigrations } from './060-takeover.ts';
import { clientChecks } from './065-client-checks.ts';
import { knownBadInUse } from './066-known-bad-in-use.ts';
import { republished } from './067-republished.ts';
import { adoptedCredentials } from './076-adopted-credentials.ts';
import { endsOfPeople } from './078-ends-of-people.ts';
import { sessionsCreated } from './079-sessions-created.ts';
import { observedBillMigrations } from './080-observed-bills.ts';
import { mirrorDrops } from './081-mirror-drops.ts';
import { adoptedTries } from './082-adopted-tries.ts';
import { absentReferences } from './083-absent-references.ts';
import { usedAccounts } from './084-used-accounts.ts';
import { webhookPatterns } from './077-webhook-patterns.ts';
import { permanenceMigrations } from './070-permanence.ts';
import { deletedMigrations } from './071-deleted.ts';
import { pullMigrations } from './074-pulls.ts';
import { promotionMigrations } from './072-promotions.ts';
import { promotionRuleMigrations } from './073-promotion-rules.ts';
import { grantMigrations } from './068-grants.ts';

/** Every migration, in order. Add new ones at the end; never change a released one. */
export const migrations: readonly Migration[] = [
  ...accounts,
  ...blobs,
  ...packages,
  ...repositories,
  ...mirror,
  ...usageMigrations,
  ...jobs,
  ...revisions,
  ...metadata,
  ...blobStates,
  ...tokenPatterns,
  ...operate,
  ...uploadBytes,
  ...longVersions,
  ...historyMigrations,
  ...storageIdentity,
  ...finishedUploads,
  ...search,
  ...probes,
  ...events,
  ...webhooks,
  ...sessions,
  ...storageHolds,
  ...names,
  ...identity,
  ...noticeMigrations,
  ...prefetchRuns,
  ...instances,
  ...counts,
  ...bounds,
  ...endsOfAccess,
  ...activeStorageMigrations,
  ...processes,
  ...peopleMigrations,
  ...newestTags,
  ...failedRequests,
  ...tokenUses,
  ...deprecatedPackages,
  ...largest,
  ...upstreamSamples,
  ...historyContent,
  ...policies,
  ...historyKinds,
  ...webhookNames,
  ...refusedForms,
  ...withdrawn,
  ...knownBadMigrations,
  ...policyReleases,
  ...waiverMigrations,
  ...bundleMigrations,
  ...bundleRuns,
  ...bundleRevocations,
  ...importMigrations,
  ...takeoverMigrations,
  ...clientChecks,
  ...knownBadInUse,
  ...republished,
  ...adoptedCredentials,
  ...webhookPatterns,
  ...permanenceMigrations,
  ...deletedMigrations,
  ...pullMigrations,
  ...promotionMigrations,
  ...promotionRuleMigrations,
  ...grantMigrations,
  ...endsOfPeople,
  ...sessionsCreated,
  ...observedBillMigrations,
  ...mirrorDrops,
  ...adoptedTries,
  ...absentReferences,
  ...usedAccounts,
];
