/** A change that no test can notice, because the program does the same with it. */
export interface Equivalent {
  file: string;
  /** The changed lines, without the space around them, as the report shows them. */
  was: string;
  becomes: string;
  reason: string;
}

export const equivalent: Equivalent[] = [
  {
    file: 'src/oci/prefetch/dockerfile.ts',
    was: 'if (end >= 0) at = end + 1;',
    becomes: 'if ((end > 0)) at = end + 1;',
    reason: 'the index is at least 1',
  },
  {
    file: 'src/oci/prefetch/image-name.ts',
    was: 'const digest = at < 0 ? undefined : text.slice(at + 1);',
    becomes: 'const digest = (at <= 0) ? undefined : text.slice(at + 1);',
    reason: 'an empty name is refused anyway',
  },
  {
    file: 'src/oci/prefetch/image-name.ts',
    was: 'let name = at < 0 ? text : text.slice(0, at);',
    becomes: 'let name = (at <= 0) ? text : text.slice(0, at);',
    reason: 'an empty name is refused anyway',
  },
  {
    file: 'src/oci/prefetch/image-name.ts',
    was: "const first = slash < 0 ? '' : name.slice(0, slash);",
    becomes: "const first = (slash <= 0) ? '' : name.slice(0, slash);",
    reason: 'both are an empty text',
  },
  {
    file: 'src/oci/prefetch/image-name.ts',
    was: "const first = slash < 0 ? '' : name.slice(0, slash);",
    becomes: 'const first = slash < 0 ? "Stryker was here!" : name.slice(0, slash);',
    reason: 'neither of the two is a host',
  },
  {
    file: 'src/oci/import/harbor-origin.ts',
    was: 'if (isDigestText(digest) && digests.length > 0) accessories.set(digest, digests);',
    becomes: 'if (isDigestText(digest) && true) accessories.set(digest, digests);',
    reason: 'an empty list is the same as none, and saves memory',
  },
  {
    file: 'src/oci/import/harbor-origin.ts',
    was: 'if (isDigestText(digest) && digests.length > 0) accessories.set(digest, digests);',
    becomes: 'if (isDigestText(digest) && (digests.length >= 0)) accessories.set(digest, digests);',
    reason: 'an empty list is the same as none, and saves memory',
  },
  {
    file: 'src/oci/import/harbor-origin.ts',
    was: 'if (accessories.size > 0) this.#accessories.set(name, accessories);',
    becomes: 'if (true) this.#accessories.set(name, accessories);',
    reason: 'an empty list is the same as none, and saves memory',
  },
  {
    file: 'src/oci/import/harbor-origin.ts',
    was: 'if (accessories.size > 0) this.#accessories.set(name, accessories);',
    becomes: 'if ((accessories.size >= 0)) this.#accessories.set(name, accessories);',
    reason: 'an empty list is the same as none, and saves memory',
  },
  {
    file: 'src/oci/format/manifest-keys.ts',
    was: "let top: Open = { kind: undefined, seen: new Set(), next: 'manifest', isKey: false };",
    becomes: "let top: Open = { kind: undefined, seen: new Set(), next: 'manifest', isKey: true };",
    reason: 'it is read only in an object or a list',
  },
  {
    file: 'src/oci/format/manifest-keys.ts',
    was: 'for (let index = 0; index < text.length; index += 1) {',
    becomes: 'for (let index = 0; (index <= text.length); index += 1) {',
    reason: 'there is no character',
  },
  {
    file: 'src/oci/format/manifest-keys.ts',
    was: 'if (freeDepth > 0 || top.next === undefined || (!isObject && top.kind === undefined)) {',
    becomes: 'if (false || (!isObject && top.kind === undefined)) {',
    reason: 'it saves memory, and decides nothing',
  },
  {
    file: 'src/oci/import/files-origin.ts',
    was: 'if (this.#referrers?.name !== name) this.#referrers = { name, found: this.#referrersIn(name) };',
    becomes: 'if (true) this.#referrers = { name, found: this.#referrersIn(name) };',
    reason: 'it saves a second reading of the same files',
  },
  {
    file: 'src/oci/import/files-origin.ts',
    was: "const [, start, name = '', tag = ''] = tagLink.exec(path) ?? [];",
    becomes: 'const [, start, name = "Stryker was here!", tag = \'\'] = tagLink.exec(path) ?? [];',
    reason: 'neither is a valid name',
  },
  {
    file: 'src/oci/import/files-origin.ts',
    was: "const [, start, name = '', tag = ''] = tagLink.exec(path) ?? [];",
    becomes: 'const [, start, name = \'\', tag = "Stryker was here!"] = tagLink.exec(path) ?? [];',
    reason: 'neither is a valid name',
  },
  {
    file: 'src/oci/import/files-origin.ts',
    was: "const [, of = '', past = '', kind, hash] = pastLink.exec(path) ?? [];",
    becomes: 'const [, of = "Stryker was here!", past = \'\', kind, hash] = pastLink.exec(path) ?? [];',
    reason: 'neither is a valid name',
  },
  {
    file: 'src/oci/import/files-origin.ts',
    was: "const [, of = '', past = '', kind, hash] = pastLink.exec(path) ?? [];",
    becomes: 'const [, of = \'\', past = "Stryker was here!", kind, hash] = pastLink.exec(path) ?? [];',
    reason: 'neither is a valid name',
  },
  {
    file: 'src/oci/import/files-origin.ts',
    was: "const [, owner = '', algorithm, hex] = revisionLink.exec(path) ?? [];",
    becomes: 'const [, owner = "Stryker was here!", algorithm, hex] = revisionLink.exec(path) ?? [];',
    reason: 'neither is a valid name',
  },
  {
    file: 'src/accounts/names.ts',
    was: 'this.#known = this.#parts.length < many ? undefined : new Recent(maxKnown);',
    becomes: 'this.#known = true ? undefined : new Recent(maxKnown);',
    reason: 'it keeps results, and saves work',
  },
  {
    file: 'src/accounts/names.ts',
    was: 'this.#known = this.#parts.length < many ? undefined : new Recent(maxKnown);',
    becomes: 'this.#known = false ? undefined : new Recent(maxKnown);',
    reason: 'it keeps results, and saves work',
  },
  {
    file: 'src/accounts/names.ts',
    was: 'this.#known = this.#parts.length < many ? undefined : new Recent(maxKnown);',
    becomes: 'this.#known = this.#parts.length <= many ? undefined : new Recent(maxKnown);',
    reason: 'it keeps results, and saves work',
  },
  {
    file: 'src/accounts/names.ts',
    was: 'this.#known = this.#parts.length < many ? undefined : new Recent(maxKnown);',
    becomes: 'this.#known = this.#parts.length >= many ? undefined : new Recent(maxKnown);',
    reason: 'it keeps results, and saves work',
  },
  {
    file: 'src/accounts/names.ts',
    was: 'if (matching === undefined) {',
    becomes: 'if (true) {',
    reason: 'it computes a kept result again',
  },
  {
    file: 'src/identity/claims.ts',
    was: 'if (!prepared) {',
    becomes: 'if (true) {',
    reason: 'it prepares the same values again',
  },
  {
    file: 'src/accounts/rights.ts',
    was: 'if (!made.has(key))',
    becomes: 'if (true)',
    reason: 'it makes the same names again',
  },
  {
    file: 'src/accounts/grants.ts',
    was: 'this.shared = received.length === 0 ? undefined : new SharedNames(received, kinds);',
    becomes: 'this.shared = false ? undefined : new SharedNames(received, kinds);',
    reason: 'shared names of no share are as none',
  },
  {
    file: 'src/http/aliases.ts',
    was: 'if (this.#aliases.length === 0) return undefined;',
    becomes: 'if (false) return undefined;',
    reason: 'it saves a loop over nothing',
  },
  {
    file: 'src/http/aliases.ts',
    was: 'return this.#hosts.size > 0 && host !== undefined && namesOf(host).some((name) => this.#hosts.has(name));',
    becomes:
      'return this.#hosts.size >= 0 && host !== undefined && namesOf(host).some((name) => this.#hosts.has(name));',
    reason: 'it saves a look into an empty set',
  },
  {
    file: 'src/http/aliases.ts',
    was: 'return this.#hosts.size > 0 && host !== undefined && namesOf(host).some((name) => this.#hosts.has(name));',
    becomes: 'return true && host !== undefined && namesOf(host).some((name) => this.#hosts.has(name));',
    reason: 'it saves a look into an empty set',
  },
  {
    file: 'src/http/send.ts',
    was: 'else if (end - start <= maxWholeBytes) sendWhole(response, status, headers, await readPart(content, start, end));',
    becomes:
      'else if ((end + start) <= maxWholeBytes) sendWhole(response, status, headers, await readPart(content, start, end));',
    reason: 'the same bytes are sent in pieces',
  },
  {
    file: 'src/http/target.ts',
    was: "if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1;",
    becomes: "if (true && name.toLowerCase() === 'host') hosts += 1;",
    reason: 'it saves a conversion',
  },
  {
    file: 'src/http/target.ts',
    was: 'if (host === lastValid) return true;',
    becomes: 'if (false) return true;',
    reason: 'it saves a second check',
  },
  {
    file: 'src/limits/limits.ts',
    was: 'if (this.#failingAddresses.size === 0) return look();',
    becomes: 'if (false) return look();',
    reason: 'it saves a look into an empty map',
  },
  {
    file: 'src/identity/publishers.ts',
    was: 'if (this.#settings.length === 0) return [];',
    becomes: 'if (false) return [];',
    reason: 'it saves a query of the database',
  },
  {
    file: 'src/identity/exchange.ts',
    was: 'if (deleted === 0) return;',
    becomes: 'if (false) return;',
    reason: 'further runs delete nothing',
  },
  {
    file: 'src/identity/exchange.ts',
    was: 'for (let run = 0; run < batchesAtOnce; run += 1) {',
    becomes: 'for (let run = 0; (run <= batchesAtOnce); run += 1) {',
    reason: 'one more batch is deleted in this run instead of the next',
  },
  {
    file: 'src/accounts/tokens.ts',
    was: 'if (used.size === 0) return;',
    becomes: 'if (false) return;',
    reason: 'it saves an empty transaction',
  },
  {
    file: 'src/accounts/people.ts',
    was: "const person = { issuer: this.#issuer ?? '', subject, name: subject, claims: [] };",
    becomes: 'const person = { issuer: this.#issuer ?? "Stryker was here!", subject, name: subject, claims: [] };',
    reason: 'no person has such an issuer',
  },
  {
    file: 'src/accounts/people.ts',
    was: "return this.rightsIn({ issuer: this.#issuer ?? '', subject: '', name: '', claims, groups: [group] }, account);",
    becomes:
      "return this.rightsIn({ issuer: this.#issuer ?? '', subject: '', name: \"Stryker was here!\", claims, groups: [group] }, account);",
    reason: 'the name is not read there',
  },
  {
    file: 'src/cli/usage.ts',
    was: "const pages = pagesOf(undefined, pageSize, read, ({ name, day }): [string, number] => [name ?? '', day ?? 0]);",
    becomes:
      'const pages = pagesOf(undefined, pageSize, read, ({ name, day }): [string, number] => [name ?? "Stryker was here!", day ?? 0]);',
    reason: 'the name is null only in a division by day, which is one page',
  },
  {
    file: 'src/storage/drivers/blob-cache.ts',
    was: 'else if (found.mtimeMs < Date.now() - abandonedAfter) await rm(path, { force: true });',
    becomes: 'else if ((found.mtimeMs <= Date.now() - abandonedAfter)) await rm(path, { force: true });',
    reason: 'one millisecond of an hour, by the clock of the system',
  },
  {
    file: 'src/nuget/format/version.ts',
    was: 'return lowerA < lowerB ? -1 : 1;',
    becomes: 'return (lowerA <= lowerB) ? -1 : 1;',
    reason: 'equal texts have returned 0 before',
  },
  {
    file: 'src/nuget/format/range.ts',
    was: "const [, numbers = '', prefix] = numeric ?? floatingPrerelease.exec(text) ?? [];",
    becomes: 'const [, numbers = \'\', prefix] = numeric ?? floatingPrerelease.exec(text) ?? ["Stryker was here"];',
    reason: 'the first item is not read',
  },
  {
    file: 'src/nuget/upstream/reading/search-answers.ts',
    was: "const version = parseVersion(textOf(hit['version']) ?? '');",
    becomes: 'const version = parseVersion(textOf(hit[\'version\']) ?? "Stryker was here!");',
    reason: 'neither text is a version',
  },
  {
    file: 'src/nuget/upstream/reading/search-answers.ts',
    was: "if (!version || !isPackageId(textOf(hit['id']) ?? '')) return undefined;",
    becomes: 'if (!version || !isPackageId(textOf(hit[\'id\']) ?? "Stryker was here!")) return undefined;',
    reason: 'neither text is an id',
  },
  {
    file: 'src/nuget/upstream/reading/search-answers.ts',
    was: "const version = parseVersion(textOf(text) ?? '');",
    becomes: 'const version = parseVersion(textOf(text) ?? "Stryker was here!");',
    reason: 'neither text is a version',
  },
  {
    file: 'src/nuget/upstream/reading/registration.ts',
    was: "const version = parseVersion(textOf(entry['version']) ?? '');",
    becomes: 'const version = parseVersion(textOf(entry[\'version\']) ?? "Stryker was here!");',
    reason: 'neither text is a version',
  },
  {
    file: 'src/nuget/upstream/reading/registration.ts',
    was: "const [lower, upper] = [parseVersion(textOf(json['lower']) ?? ''), parseVersion(textOf(json['upper']) ?? '')];",
    becomes:
      "const [lower, upper] = [parseVersion(textOf(json['lower']) ?? \"Stryker was here!\"), parseVersion(textOf(json['upper']) ?? '')];",
    reason: 'neither text is a version',
  },
  {
    file: 'src/nuget/upstream/reading/registration.ts',
    was: "const [lower, upper] = [parseVersion(textOf(json['lower']) ?? ''), parseVersion(textOf(json['upper']) ?? '')];",
    becomes:
      "const [lower, upper] = [parseVersion(textOf(json['lower']) ?? ''), parseVersion(textOf(json['upper']) ?? \"Stryker was here!\")];",
    reason: 'neither text is a version',
  },
  {
    file: 'src/nuget/import/same-content.ts',
    was: 'for (const [name, size] of sizes) if (others.get(name) !== size) return false;',
    becomes: 'for (const [name, size] of sizes) if (false) return false;',
    reason: 'the hashes differ too; the sizes save reading',
  },
  {
    file: 'src/upstream/breaker.ts',
    was: "const isReachable = kind === 'connection' && this.#succeededAt > began;",
    becomes: "const isReachable = kind === 'connection' && this.#succeededAt >= began;",
    reason: 'each event has another number',
  },
  {
    file: 'src/upstream/breaker.ts',
    was: 'if (this.#succeededAt > began) return false;',
    becomes: 'if (this.#succeededAt >= began) return false;',
    reason: 'each event has another number',
  },
  {
    file: 'src/upstream/breaker.ts',
    was: 'return pause !== undefined && pause.sequence < sequence;',
    becomes: 'return pause !== undefined && (pause.sequence <= sequence);',
    reason: 'each event has another number',
  },
  {
    file: 'src/policy/decide.ts',
    was: "upstream: '',",
    becomes: 'upstream: "Stryker was here!",',
    reason: 'no upstream has either name',
  },
  {
    file: 'src/exposure/newly-known.ts',
    was: 'const known = await this.#known(warnings.length === 0 ? [] : contents.map(({ id }) => id));',
    becomes: 'const known = await this.#known(false ? [] : contents.map(({ id }) => id));',
    reason: 'it saves a query of the database',
  },
  {
    file: 'src/import/name-rules.ts',
    was: "const [from = [], to = [], ...more] = text.split('=').map((each) => each.split('*'));",
    becomes:
      "const [from = [\"Stryker was here\"], to = [], ...more] = text.split('=').map((each) => each.split('*'));",
    reason: 'a split text has at least one part',
  },
  {
    file: 'src/upstream/next-page.ts',
    was: 'const next = /<([^<>]{1,4096})>\\s*;[^,<]*rel="?next"?/.exec(String(link ?? \'\'))?.[1];',
    becomes: 'const next = /<([^<>]{1,4096})>\\s*;[^,<]*rel="?next"?/.exec(String(link ?? "Stryker was here!"))?.[1];',
    reason: 'neither text has a link',
  },
  {
    file: 'src/upstream/configured.ts',
    was: "const entries = direct.split(/[\\s,]+/).filter((entry) => entry !== '');",
    becomes: "const entries = direct.split(/[\\s,]/).filter((entry) => entry !== '');",
    reason: 'empty parts are left out anyway',
  },
  {
    file: 'src/mirror/policy/admission.ts',
    was: 'if (at % atATime === 0) await pause();',
    becomes: 'if (true) await pause();',
    reason: 'it pauses more often, and stays correct',
  },
  {
    file: 'src/nuget/operations/findings.ts',
    was: 'if (some.size > 0) await addSome();',
    becomes: 'if (true) await addSome();',
    reason: 'it saves a query of the database',
  },
  {
    file: 'src/oci/mirrored/stored-manifests.ts',
    was: 'references.filter((each) => !isDigest(each)),',
    becomes: 'references,',
    reason: 'no tag has the name of a digest; it makes the statement shorter',
  },
  {
    file: 'src/prefetch/reader-thread.ts',
    was: 'for (; from + piece < items.length; from += piece) {',
    becomes: 'for (; (from + piece <= items.length); from += piece) {',
    reason: 'the last message then has no items',
  },
  {
    file: 'src/accounts/token-bounds.ts',
    was: 'if (ids.length > 0) await tx.run(`DELETE FROM tokens WHERE id IN (${placeholders(ids)})`, ids);',
    becomes: 'if ((ids.length >= 0)) await tx.run(`DELETE FROM tokens WHERE id IN (${placeholders(ids)})`, ids);',
    reason: 'of 2,000 tokens, of which at most 1,000 are valid, some can always be deleted',
  },
  {
    file: 'src/database/write-counts.ts',
    was: 'this.#all += 1;',
    becomes: 'this.#all -= 1;',
    reason: 'the number is only compared with an earlier one',
  },
  {
    file: 'src/nuget/search/list.ts',
    was: 'return size < Math.min(most, sizeLimit) ? undefined : most;',
    becomes: 'return false ? undefined : most;',
    reason: 'a list that is shorter than the bound does not reach it',
  },
  {
    file: 'src/policy/listed-names.ts',
    was: 'listsHeld: false,',
    becomes: 'listsHeld: true,',
    reason: 'a layer of lists has no age, so it holds nothing',
  },
  {
    file: 'src/nuget/hosted/symbol-packages.ts',
    was: "await tx.insertNew('package_symbols', rows.slice(start, start + rowsPerStatement));",
    becomes: "await tx.insertNew('package_symbols', rows);",
    reason: 'the primary key ignores repeated rows',
  },
  {
    file: 'src/backup/backup.ts',
    was: "? new Share('', Infinity)",
    becomes: '? new Share("Stryker was here!", Infinity)',
    reason: 'every digest sorts after that text',
  },
  {
    file: 'src/usage/client-checks.ts',
    was: "if (!target.includes('entrepot-check')) return undefined;",
    becomes: 'if (false) return undefined;',
    reason: 'it only saves work for all other requests',
  },
  {
    file: 'src/usage/client-checks.ts',
    was: 'if (expiresAt <= now) continue;',
    becomes: 'if (false) continue;',
    reason: 'what has expired is dropped when it is written',
  },
  {
    file: 'src/usage/observed-pushes.ts',
    was: 'if (pushes.length === 0) return;',
    becomes: 'if (false) return;',
    reason: 'it saves a query of the database',
  },
  {
    file: 'src/accounts/refused-forms.ts',
    was: 'if (rows.length === 0) return;',
    becomes: 'if (false) return;',
    reason: 'it saves a query of the database',
  },
  {
    file: 'src/accounts/refused-forms.ts',
    was: "if (principal.kind === 'anonymous') return undefined;",
    becomes: 'if (false) return undefined;',
    reason: 'then there is no token, and it is not remembered',
  },
  {
    file: 'src/usage/pulls.ts',
    was: 'if (this.#known.size + written.size > maxKnown) this.#known.clear();',
    becomes: 'if (true) this.#known.clear();',
    reason: 'it saves a query of the database',
  },
  {
    file: 'src/usage/pulls.ts',
    was: "if (table === 'pull_contents') await forgetPushes(tx, ids);",
    becomes: 'if (true) await forgetPushes(tx, ids);',
    reason: 'IDs of users are no contents',
  },
];
