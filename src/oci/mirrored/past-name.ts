import type { MirroredName } from '../../mirror/policy/admission.ts';

/** A repository as if its tags had these digests. */
export function pastName(name: MirroredName, digests: ReadonlyMap<string, string>): MirroredName {
  const digestOf = (reference: string) => digests.get(reference) ?? reference;
  const of: MirroredName['facts']['of'] = async (references) => {
    const facts = await name.facts.of([...new Set(references.map(digestOf))]);
    return new Map(
      references.flatMap((each) => (facts.has(digestOf(each)) ? [[each, facts.get(digestOf(each))!]] : [])),
    );
  };
  return { ...name, facts: { ...name.facts, of }, isPast: true };
}
