// The words in generated packages. They are the same in each run.

/** Topics of packages, the most common first. */
export const subjects = `library core net client api service data json http web common extensions tools logging database
  security cache queue message event stream file image text parser builder generator analyzer testing mock fluent
  validation mapping serialization configuration dependency injection entity framework sql query storage cloud azure aws
  identity auth token crypto hash compression zip xml yaml csv excel pdf report chart math graph tree search index
  schedule job task worker pipeline workflow process monitor metrics tracing health retry policy rate limit proxy gateway
  router socket grpc rest odata graphql swagger openapi razor blazor mvc maui wpf forms xamarin android ios device sensor
  game physics audio video camera map geo route payment invoice order product customer mail sms push notification chat
  bot language model vector tensor learning vision speech calendar money currency unit color font layout theme grid menu`
  .split(/\s+/)
  .filter(Boolean);

/** Random numbers from 0 to 1, the same for the same seed (mulberry32). */
export function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** One of `items`; the first ones are more frequent, by Zipf's law. */
export function pick<T>(items: readonly T[], random: () => number): T {
  return items[Math.floor(items.length ** random()) - 1]!;
}

/** `count` different invented words. */
function invent(count: number): string[] {
  const random = numbers(1);
  const syllable = () => `${'bcdfghjklmnprstvwz'[Math.floor(random() * 18)]}${'aeiou'[Math.floor(random() * 5)]}`;
  const words = new Set<string>();
  while (words.size < count) words.add(Array.from({ length: 2 + Math.floor(random() * 3) }, syllable).join(''));
  return [...words];
}

const invented = invent(20_000);

/** Publishers of packages, the one with most packages first. */
export const vendors = invented.slice(0, 5000);

/** Words of descriptions, the most common first. */
export const vocabulary = [...subjects, ...invented.slice(5000)];
