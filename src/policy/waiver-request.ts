import type { NameStory } from '../mirror/policy/upstream-policy.ts';
import { DomainError } from '../runtime/errors.ts';
import type { RangeReader } from './compile.ts';

/** Most references of a request. A tag is kept with its digest. */
export const maxWaiverReferences = 50;
/** Most characters of a reason. */
export const maxReason = 500;
/** What a waiver can lift, as a word. */
export const liftedPattern = /^[\w.:+-]{1,100}$/;

/** What a waiver can lift, for messages. */
export const liftable =
  'age, withdrawn, republished, the name of a rule, or the ID of an advisory or of an entry of a list';

/** Whether a reference is a range of versions. */
export function isRange(reference: string): boolean {
  return /^[[(]/.test(reference);
}

/** See `Waivers.resolve`. */
export async function resolveReferences(
  story: NameStory,
  name: string,
  references: readonly string[],
  readRange: RangeReader,
): Promise<{ name: string; key: string; references: string[] }> {
  const { policyName: key } = story;
  if (key === undefined) {
    const why = story.isHosted
      ? 'it is hosted here, and a policy concerns mirrored content only'
      : 'no upstream serves it';
    throw invalid('name', `${name}: ${why}`);
  }
  if (references.length > maxWaiverReferences)
    throw invalid('references', `a waiver has at most ${maxWaiverReferences} references`);
  const resolved = new Set<string>();
  for (const each of references)
    for (const reference of await resolve(story, each.trim(), readRange)) resolved.add(reference);
  return { name: story.digestOf ? key : name, key, references: [...resolved] };
}

async function resolve(story: NameStory, text: string, readRange: RangeReader): Promise<string[]> {
  if (isRange(text) && !story.digestOf) {
    if (readRange(text) === undefined)
      throw invalid('references', `${text}: expected a range of versions such as [2.0.0, 2.1.0)`);
    if (!/^\[[^,]+\]$|^.[^,]*[^,\s][^,]*,[^,]*[^,\s][^,]*.$/.test(text))
      throw invalid('references', `${text}: a range needs a first and a last version, such as [2.0.0, 2.1.0)`);
    return [text];
  }
  const found = await story.referenceTo?.(text);
  if (!found)
    throw invalid('references', `${text}: expected a version, a range such as [2.0.0, 2.1.0), a tag or a digest`);
  const { reference } = found;
  if (!story.digestOf || reference.includes(':')) return [reference];
  const digest = await story.digestOf(reference);
  if (digest === undefined) throw invalid('references', `${text}: the upstream has no such tag`);
  return [reference, digest];
}

/** Throws `Invalid` for what the fields of a waiver cannot hold. */
export function checkTexts({ lifts, reason }: { lifts: string; reason: string }): void {
  if (!liftedPattern.test(lifts)) throw invalid('lifts', `expected ${liftable}`);
  if (reason.trim() === '' || reason.length > maxReason)
    throw invalid('reason', `say in 1 to ${maxReason} characters why it is needed`);
}

function invalid(field: string, message: string): DomainError {
  return new DomainError('Invalid', message, { detail: { errors: [{ field, message }] } });
}
