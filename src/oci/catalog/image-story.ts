import type { Database } from '../../database/database.ts';
import { DomainError } from '../../runtime/errors.ts';
import { isDigest } from '../../runtime/digest.ts';
import type { NameStory } from '../../mirror/policy/upstream-policy.ts';
import { isRepositoryName, isTag } from '../format/reference.ts';
import { claimsAmong } from '../hosted/repositories.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';

/** Where an account gets the image `asked` from, and why. Throws `Invalid` for what is no name of an image. */
export async function imageStory(
  database: Database,
  mirror: ImageMirror,
  accountId: number,
  asked: string,
): Promise<NameStory> {
  if (!isRepositoryName(asked))
    throw new DomainError('Invalid', 'name: expected the name of an image, such as team/api');
  const { reservedBy, upstreams, hosted, missing, meant } = mirror.names.explain(asked);
  const { place } = mirror.names.locate(asked, undefined);
  const claims = await claimsAmong(database, accountId, hosted);
  const isHosted = hosted.some((name) => claims.get(name));
  return {
    isHosted,
    reservedBy,
    missing,
    upstreams: upstreams.map((each) => (isHosted && each.rule === 'asked' ? { ...each, rule: 'hosted' } : each)),
    spellings: hosted,
    nameThere: meant?.name ?? asked,
    policyName: place && !isHosted ? mirror.nameOf(place).shown[0] : undefined,
    referenceTo: async (reference) => {
      const isReference = isDigest(reference) || isTag(reference);
      if (!place || isHosted || !isReference) return undefined;
      return { name: mirror.nameOf(place), reference };
    },
    digestOf: async (tag) => place && mirror.digestOf(place, tag),
  };
}
