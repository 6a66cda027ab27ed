/** Most items of a list in a document, such as versions or resources: each item is checked. */
export const maxListed = 100_000;

/** Whether `value` is a list of at most `maxListed` items. */
export function isList(value: unknown): value is unknown[] {
  return Array.isArray(value) && value.length <= maxListed;
}

/** The JSON object or array in `bytes`. Throws if there is none. */
export function jsonIn(bytes: Buffer): Record<string, unknown> {
  const value: unknown = JSON.parse(bytes.toString('utf8').replace(/^\uFEFF/, ''));
  if (typeof value !== 'object' || value === null) throw otherForm();
  return value as Record<string, unknown>;
}

export function otherForm(): Error {
  return new Error('it is not a JSON document of the expected form');
}
