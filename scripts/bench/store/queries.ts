import { makePackages, type MadePackage } from './packages.ts';
import { subjects, vocabulary } from './words.ts';

/** Number of queries of each kind. */
const number = 20;

/** Paths of searches in these packages, by default in those of `makePackages`, as clients request them. Each search finds something. */
export function queries(packages: readonly MadePackage[] = [...makePackages(number * 100)]): Record<string, string[]> {
  const some = packages.filter((_, index) => index % Math.ceil(packages.length / number) === 0);
  const rank = new Map(vocabulary.map((word, index) => [word, index]));
  const rarest = (text: string) =>
    text
      .toLowerCase()
      .split(/\W+/)
      .reduce((a, b) => ((rank.get(b) ?? 0) > (rank.get(a) ?? 0) ? b : a));
  return {
    'a common word': subjects.slice(0, number).map(search),
    'a rare word': some.map(({ nuspec }) => search(rarest(nuspec.description!))),
    'the start of an id': some.map(({ id }) => search(id.slice(0, 6))),
    'two words of an id': some.map(({ id }) => search(id.split('.').slice(0, 2).join(' '))),
    'two common words': subjects.slice(0, number).map((word, index) => search(`${word} ${subjects[index + 1]}`)),
    nothing: [search('')],
    'an id to complete': some.map(({ id }) => `/v3/autocomplete?${asked(id.slice(0, 4))}`),
  };
}

/** All kinds in turn, each the same number of times. */
export function mixed(kinds: Record<string, string[]>): string[] {
  const lists = Object.values(kinds);
  return Array.from({ length: number }, (_, index) => lists.map((list) => list[index % list.length]!)).flat();
}

function search(text: string): string {
  return `/v3/search?${asked(text)}`;
}

function asked(text: string): string {
  const parameters = { q: text, skip: '0', take: '20', prerelease: 'false', semVerLevel: '2.0.0' };
  return new URLSearchParams(parameters).toString();
}
