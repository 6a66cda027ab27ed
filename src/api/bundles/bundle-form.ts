import type { Readable } from 'node:stream';
import type { BundleRuns } from '../../bundle/runs/bundle-runs.ts';
import type { MakeSettings } from '../../bundle/runs/run.ts';
import type { Receipt } from '../../bundle/receipt.ts';
import { readKeyStatement } from '../../bundle/statements.ts';
import { parseDuration, parseSize } from '../../config/units.ts';
import { readMultipart } from '../../http/multipart.ts';
import { contextOf } from '../../http/request-context.ts';
import type { PrefetchFile } from '../../jobs/prefetch-run.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { Receiving } from '../framework/operation.ts';
import { flagIn, readPrefetchForm, wrongField } from '../prefetch/prefetch-form.ts';
import { prefetchSettings, type PrefetchOperationParts } from '../prefetch/prefetch.ts';

/** Most bytes of a receipt. */
const maxReceipt = 64 * 2 ** 20;
/** Most segments of one form. */
const maxFormSegments = 100;

interface MakeForm {
  settings: MakeSettings;
  files: PrefetchFile[];
  receipt: Receipt | undefined;
}

/**
 * Reads the form of a bundle to make. `fields` has the fields that came before an error. Throws `Invalid`, which names the wrong
 * field, `TooLarge`, `Aborted`, `StorageFull`, and `Denied` for a receipt whose key is not trusted.
 */
export async function readMakeForm(
  runs: BundleRuns,
  { runs: prefetches, kinds, idle }: PrefetchOperationParts,
  receiving: Receiving,
  fields: Map<string, string>,
): Promise<MakeForm> {
  let staging: Promise<StagedFile> | undefined;
  const take = async (content: Readable) => {
    if (staging) throw wrongField('against', 'Send one receipt.');
    staging = runs.stage();
    await (await staging).append(content, { limit: maxReceipt });
  };
  try {
    const files = await readPrefetchForm(receiving, idle, fields, (field, _name, content) =>
      field === 'against' ? take(content) : undefined,
    );
    const settings = makeSettings(fields, prefetches, kinds);
    if (files.length === 0 && !settings.stored)
      throw wrongField('file', 'Choose at least one file, or everything that is mirrored.');
    const staged = await staging;
    const receipt =
      staged && staged.size > 0
        ? await runs.readReceipt(staged).catch((error: unknown) => {
            throw isDomainError(error, 'Invalid') ? wrongField('against', sentence(error.message)) : error;
          })
        : undefined;
    return { settings: { ...settings, files: files.map(({ file }) => file) }, files, receipt };
  } finally {
    await (await staging?.catch(() => undefined))?.discard();
  }
}

function makeSettings(
  fields: ReadonlyMap<string, string>,
  prefetches: PrefetchOperationParts['runs'],
  kinds: readonly string[],
): Omit<MakeSettings, 'files'> {
  const { dryRun: _never, ...settings } = prefetchSettings(fields, prefetches, kinds);
  const unit = (name: string, parse: (text: string) => number | undefined, expected: string) => {
    const text = fields.get(name)?.trim();
    if (!text) return undefined;
    const value = parse(text);
    if (!value || !Number.isSafeInteger(value)) throw wrongField(name, expected);
    return value;
  };
  return {
    ...settings,
    stored: flagIn(fields, 'stored', false),
    policy: flagIn(fields, 'policy', false),
    knownBad: flagIn(fields, 'known_bad', false),
    newKey: newKeyIn(fields),
    allowMissing: flagIn(fields, 'allow_missing', false),
    segment: unit('segment', parseSize, 'Send a size such as 4.3GB.'),
    validFor: unit('expires', parseExpiry, 'Send a duration such as 30d, of 3650d at most.'),
  };
}

/** The statement about a new key. Throws `Invalid` for another text. */
function newKeyIn(fields: ReadonlyMap<string, string>): string | undefined {
  const text = fields.get('new_key')?.trim();
  if (!text) return undefined;
  try {
    readKeyStatement(text, 'this');
  } catch (error) {
    throw isDomainError(error, 'Invalid') ? wrongField('new_key', sentence(error.message)) : error;
  }
  return text;
}

function parseExpiry(text: string): number | undefined {
  const time = parseDuration(text);
  return time !== undefined && time <= 3650 * 86_400_000 ? time : undefined;
}

/** Receives the segments in a form, each under the number in its name. Throws `Invalid` for another name, and as `BundleRuns.receive`. */
export async function readSegmentsForm(
  runs: BundleRuns,
  { request, response }: Receiving,
  id: string,
  idle: number,
): Promise<void> {
  request.on('data', (piece: Buffer) => (contextOf(response).received += piece.length));
  let received = 0;
  await readMultipart(request, {
    idle,
    files: maxFormSegments,
    tooMany: `Send at most ${maxFormSegments} segments at a time.`,
    expected: 'The form is malformed. Send the segments as multipart/form-data.',
    onFile: async (_field, filename, content) => {
      const name = filename.split(/[\\/]/).at(-1)!;
      const number = /^(\d{4})\.tar$/.exec(name)?.[1];
      if (number === undefined && name !== '')
        throw wrongField('segment', 'Send files with names such as 0001.tar, as they are in the folder of the bundle.');
      // A browser sends an empty file for an empty field.
      if (number === undefined) return void content.resume();
      received += 1;
      return runs.receive(id, segmentNumber(number), content, { announced: 0, consume: false });
    },
  });
  if (received === 0) throw wrongField('segment', 'Choose at least one segment.');
}

/** The number in an address or a name. Throws `Invalid`. */
export function segmentNumber(text: string): number {
  const number = Number(text);
  if (!/^\d{1,4}$/.test(text) || number === 0)
    throw new DomainError('Invalid', 'The number of a segment is a whole number from 1 to 9999.');
  return number;
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`.replace(/\.\.$/, '.');
}
