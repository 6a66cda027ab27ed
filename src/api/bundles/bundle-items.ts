import type { z } from 'zod';
import type { BundleCounts } from '../../bundle/format.ts';
import type { BundleRecord } from '../../bundle/bundles.ts';
import type { SegmentFile } from '../../bundle/runs/run-files.ts';
import type { BundleRun, ImportedRun, MadeRun } from '../../bundle/runs/run.ts';
import type { TrustedKey } from '../../bundle/trust.ts';
import { jsonItem } from '../../runtime/json-item.ts';
import { platformText } from '../../prefetch/platform.ts';
import { timeOf, timeOrNull } from '../framework/schemas.ts';
import type { bundleImport, bundleKey, bundleList, bundleMaking } from './bundle-schemas.ts';

type Keys = readonly TrustedKey[];

/** A bundle as `/v1` shows it. */
export function bundleItem(record: BundleRecord, keys: Keys): z.input<typeof bundleList>['items'][number] {
  const { id, direction, source, sequence, state, summary, createdAt, changedAt } = record;
  return {
    digest: `sha256:${id}`,
    direction,
    source,
    sequence,
    state,
    ...countsItem(summary),
    segments: summary.segments,
    size_bytes: summary.bytes,
    against: summary.against,
    written: summary.written ?? null,
    known_bad: [...(summary.knownBad ?? [])],
    key: signerItem(summary.key, keys),
    created_at: timeOf(createdAt),
    changed_at: timeOf(changedAt),
  };
}

/** A trusted key as `/v1` shows it. */
export function keyItem({ pem, ...key }: TrustedKey): z.input<typeof bundleKey> {
  return { ...jsonItem(key), public_key: pem };
}

/** A bundle that is being made as `/v1` shows it. */
export function makingItem(run: MadeRun, files: readonly SegmentFile[], keys: Keys): z.input<typeof bundleMaking> {
  const { settings, progress } = run;
  return {
    ...runItem(run, files, keys),
    files: [...settings.files],
    stored: settings.stored,
    platforms: settings.platforms.map(platformText),
    frameworks: [...settings.frameworks],
    referrers: settings.referrers,
    against: settings.against ?? null,
    known: progress.known ?? 0,
    ended: progress.ended ?? 0,
    received_bytes: progress.received ?? 0,
    waiting: progress.waiting ?? null,
    missing: progress.missing ?? [],
    missing_total: progress.missingTotal ?? 0,
  };
}

/** An import as `/v1` shows it. */
export function importItem(run: ImportedRun, files: readonly SegmentFile[], keys: Keys): z.input<typeof bundleImport> {
  const { settings, progress } = run;
  const { unsigned, older, check = false } = settings;
  return { ...runItem(run, files, keys), unsigned, older, check, needed: progress.lacking ?? [] };
}

function runItem({ id, state, createdAt, endedAt, progress }: BundleRun, files: readonly SegmentFile[], keys: Keys) {
  const { bytes = 0, of, error = null, result } = progress;
  return {
    id,
    state,
    error,
    created_at: timeOf(createdAt),
    ended_at: timeOrNull(endedAt),
    done_bytes: bytes,
    total_bytes: of ?? null,
    segments: files.map(({ number, size }) => ({ number, size_bytes: size })),
    bundle: result
      ? {
          digest: result.id,
          ...countsItem(result.counts),
          segments: result.segments,
          size_bytes: result.bytes,
          written: result.written ?? null,
          key: signerItem(result.key, keys),
          policy: result.policy,
          known_bad: [...(result.knownBad ?? [])],
          new_key: result.newKey ?? null,
        }
      : null,
  };
}

function signerItem(id: string | null, keys: Keys): { id: string; name: string | null } | null {
  return id === null ? null : { id, name: keys.find((each) => each.id === id)?.name ?? null };
}

function countsItem({ packages, manifests, layers, documents }: BundleCounts) {
  return {
    packages: tallyItem(packages),
    manifests: tallyItem(manifests),
    layers: tallyItem(layers),
    documents: tallyItem(documents),
  };
}

function tallyItem({ count, bytes }: BundleCounts['layers']) {
  return { count, size_bytes: bytes };
}
