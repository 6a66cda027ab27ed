import { z } from 'zod';
import { DomainError } from '../runtime/errors.ts';
import type { PermanenceRules } from './rules.ts';

/** Most patterns of one list, and most characters of one pattern. */
const maxRules = 100;
const maxRuleLength = 400;
/** A name, and after `:` or `@` what of it: a version, a tag or a digest. */
const rulePattern = /^[^\s,\\:@]+(?::[^\s,\\:@]+|@[^\s,\\@]+)?$/;

/** A list of patterns: of names, or of names with one of the `separators` and a reference. */
function rules(separators: string, expected: string, description: string) {
  const error = `expected patterns such as ${expected}, without spaces and commas`;
  const pattern = z
    .string(error)
    .max(maxRuleLength, `expected at most ${maxRuleLength} characters`)
    .regex(rulePattern, error)
    .refine((text) => !/\p{Cc}/u.test(text), error)
    .refine((text) => ['@', ':'].every((each) => separators.includes(each) || !text.includes(each)), error);
  return z.array(pattern).max(maxRules, `expected at most ${maxRules} patterns`).meta({ description });
}

const freeze = {
  images: rules(
    ':',
    'team/* or team/*:v*',
    'Tags that cannot point to another manifest once they exist, and cannot be deleted: `name:tag`, or `name` for all tags. `*` stands for any characters',
  ),
};

const keep = {
  packages: rules(
    '@',
    'Contoso.* or Contoso.Core@2.*',
    'Versions that cannot be deleted: `id@version`, or `id` for all versions',
  ),
  images: rules(
    ':@',
    'team/*, team/*:v* or team/api@sha256:…',
    'What cannot be deleted: `name:tag`, `name@digest`, or `name` for all of an image',
  ),
};

/** All rules of an account. */
export const permanenceItem = z
  .strictObject({ freeze: z.strictObject(freeze), keep: z.strictObject(keep) })
  .meta({ id: 'Permanence' });

/** The rules in a request: a list that is left out is empty. */
export const permanenceBody = z.strictObject({
  freeze: z.strictObject({ images: freeze.images.default([]) }).prefault({}),
  keep: z.strictObject({ packages: keep.packages.default([]), images: keep.images.default([]) }).prefault({}),
});

/** Checks rules. Throws `Invalid`, with the first wrong one. */
export function parseRules(given: unknown): PermanenceRules {
  const { data, error } = permanenceBody.safeParse(given);
  if (data) return data;
  const [issue] = error.issues;
  throw new DomainError('Invalid', `${issue!.path.join('.')}: ${issue!.message}`);
}
