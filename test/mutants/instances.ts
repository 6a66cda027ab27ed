import { mutantsOf } from './mutant.ts';

export const instances = [
  ...mutantsOf(
    'src/instances/instances.ts',
    ['test/instances/table.test.ts'],
    [
      ['a dead instance is live', '(seen_at > ${now} - lease AND', '(seen_at > 0 AND'],
      ['an instance from the future is live', ' AND seen_at <= ${now} + lease)', ')'],
      ['dead instances stay', 'await this.#removeDead(tx);\n      await this.#insert', 'await this.#insert'],
      ['a process signs work after it has left', 'this.#isEntered = false;\n    clearInterval', 'clearInterval'],
      ['a removed row does not come back', '=== 0) await this.#insert(tx, this.#own!);', '=== 0) return;'],
    ],
  ),
  ...mutantsOf(
    'src/instances/folder.ts',
    ['test/instances/table.test.ts'],
    [['a copy of a data folder has the same identity', '`${id}.${ino}`', '`${id}.${ino}`.slice(0, 36)']],
  ),
  ...mutantsOf(
    'src/instances/relay-listener.ts',
    ['test/instances/relay.test.ts'],
    [
      ['any signature is accepted', 'authorization) ? expected : undefined', 'authorization) ? expected : expected'],
      ['an old call is accepted', '> clockTolerance)', '> Number.POSITIVE_INFINITY)'],
      ['a call for another folder is accepted', 'to === this.#options.folder ?', 'to.length > 0 ?'],
      ['each refused call is logged', '>= logEvery', '>= 0'],
    ],
  ),
  ...mutantsOf(
    'src/instances/relay.ts',
    ['test/instances/relay.test.ts'],
    [
      [
        'a body is read as fast as it comes',
        'source.pipe(request);',
        "source.on('data', (piece) => request.write(piece)).on('end', () => request.end());",
      ],
      [
        'an answer needs no signature',
        'isSameSignature(this.#key.ofAnswer(this.#signature, text), signature)',
        'signature',
      ],
      ['a call to a dead instance goes on', 'if (await isLive()) liveAt', 'if ((await isLive()) || true) liveAt'],
    ],
  ),
  ...mutantsOf(
    'src/oci/http/upload-relay.ts',
    ['test/instances/relay.test.ts', 'test/instances/uploads.test.ts'],
    [
      ['a session whose instance is lost goes on', 'await loseUpload(database, key);', ''],
      ['a request that was taken over ends the session', 'if (error.accepted &&', 'if (!error.accepted &&'],
      [
        'a relayed upload has no limit of storage',
        'allowance: quota.unfinishedOf({ accountId, accountName: account.name })',
        'allowance: undefined',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/uploads/lost-uploads.ts',
    ['test/instances/uploads.test.ts'],
    [['sessions of live instances are lost', '!folders.has(each.folder)', 'each.folder']],
  ),
];
