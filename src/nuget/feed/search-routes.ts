import type { Router } from 'express';
import { listsOf, ownerOf } from '../../accounts/owner.ts';
import { readsHosted, type Principal } from '../../accounts/principal.ts';
import { sendLongJson } from '../../http/json-pieces.ts';
import { splitTarget } from '../../http/target.ts';
import { withPauses } from '../../runtime/event-loop.ts';
import type { SearchRequest } from '../source/merged-search.ts';
import { isShared } from '../source/reader.ts';
import { isPackageId } from '../format/nuspec.ts';
import { searchTargets, type SearchTargets } from '../format/frameworks.ts';
import { changing } from './documents.ts';
import type { Answering, FeedCall, FeedParts } from './call.ts';
import { parseQuery } from '../search/search-query.ts';
import { limitHits } from '../format/search-hit.ts';
import { searchResult } from './search-result.ts';

const defaultTake = 20;
/** Limits of the public gallery. With a larger `skip` there are no hits, so that a client that reads page after page ends. */
const maxTake = 1000;
const maxSkip = 3000;

/** Search and autocompletion. Clients spell parameters differently, so an invalid value counts as not given. */
export function addSearching(router: Router, answering: Answering, { search }: FeedParts): void {
  const searching = (answer: (call: FeedCall) => Promise<void>) => answering('read', answer, undefined, 'searches');
  // https://learn.microsoft.com/nuget/api/search-query-service-resource
  router.get(
    '/search',
    searching(async ({ request, response, principal, addresses }) => {
      const parameters = new URLSearchParams(splitTarget(request.url!).query);
      const options = optionsOf(parameters, principal);
      const { served, value } = await search.find(
        listsOf(principal, 'package'),
        searchRequestOf(parameters, false),
        options,
      );
      const hive = options.semVer2 ? 'registration-gz-semver2' : 'registration';
      const results: object[] = [];
      for await (const hit of withPauses(limitHits(value.data))) results.push(searchResult(addresses, hive, hit));
      await sendLongJson(request, response, { totalHits: value.totalHits, data: results }, changing(served));
    }),
  );

  // https://learn.microsoft.com/nuget/api/search-autocomplete-service-resource
  router.get(
    '/autocomplete',
    searching(async ({ request, response, principal }) => {
      const parameters = new URLSearchParams(splitTarget(request.url!).query);
      const options = optionsOf(parameters, principal);
      const id = text(parameters, 'id');
      if (id === undefined) {
        const found = await search.findIds(listsOf(principal, 'package'), searchRequestOf(parameters, true), options);
        return sendLongJson(request, response, found.value, changing(found.served));
      }
      const owner = await ownerOf(principal, 'package', id);
      const asked = { ...options, isShared: isShared(principal, owner) };
      const found = isPackageId(id) ? await search.versions(owner, id, asked) : undefined;
      const headers = changing(found?.served ?? 'hosted');
      await sendLongJson(request, response, { data: found?.value ?? [] }, headers);
    }),
  );
}

function searchRequestOf(parameters: URLSearchParams, idOnly: boolean): SearchRequest {
  const typed = text(parameters, 'q') ?? '';
  const packageType = packageTypeOf(parameters);
  const targets = targetsOf(parameters);
  const query = parseQuery(typed, { packageType, idOnly, frameworks: targets?.usable });
  return { text: typed, packageType, targets, query };
}

/** NuGet's own client sends `supportedFramework` once for each framework; the gallery has `tfms` and `frameworks`. */
function targetsOf(parameters: URLSearchParams): SearchTargets | undefined {
  const names = [...list(parameters, 'supportedFramework'), ...list(parameters, 'tfms')];
  return searchTargets(names, list(parameters, 'frameworks'));
}

/** The values of a parameter, with its name in any case. The comma in `.NETFramework,Version=v4.7.2` separates no values. */
function list(parameters: URLSearchParams, name: string): string[] {
  return [...parameters]
    .filter(([key]) => key.toLowerCase() === name.toLowerCase())
    .flatMap(([, value]) => value.split(/,(?!\s*\w+=)/))
    .filter((value) => value.trim() !== '');
}

function optionsOf(parameters: URLSearchParams, principal: Principal) {
  const skip = numberOf(parameters, 'skip', 0, Infinity);
  return {
    prerelease: text(parameters, 'prerelease')?.toLowerCase() === 'true',
    semVer2: (text(parameters, 'semVerLevel') ?? '').startsWith('2.'),
    skip: Math.min(skip, maxSkip),
    take: skip > maxSkip ? 0 : numberOf(parameters, 'take', defaultTake, maxTake),
    only: principal.names?.of('package'),
    mirroredOnly: !readsHosted(principal),
  };
}

/** NuGet's own client calls it `packageTypeFilter`. */
function packageTypeOf(parameters: URLSearchParams): string | undefined {
  return text(parameters, 'packageType') || text(parameters, 'packageTypeFilter') || undefined;
}

function numberOf(parameters: URLSearchParams, name: string, fallback: number, most: number): number {
  const value = text(parameters, name);
  return value !== undefined && /^\d+$/.test(value) ? Math.min(Number(value), most) : fallback;
}

/** A parameter, with its name in any case; the first if there are several. */
function text(parameters: URLSearchParams, name: string): string | undefined {
  const exact = parameters.get(name);
  if (exact !== null) return exact;
  return [...parameters].find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1];
}
