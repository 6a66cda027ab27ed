import { pino } from 'pino';
import { openDatabase } from '../../../src/database/database.ts';
import { ListRefresh } from '../../../src/known-bad/refresh.ts';

// Reads a list from one file and from another one, in turn, until it is killed. Writes a line before each time.

const [url = '', ...files] = process.argv.slice(2);
const database = await openDatabase(url);
for (let round = 0; ; round += 1) {
  const file = files[round % files.length]!;
  const list = {
    name: 'osv',
    file,
    refresh: 0,
    ids: ['*'],
    except: [],
    mode: 'enforce' as const,
    allowPrivateNetwork: false,
  };
  const refresh = new ListRefresh({
    database,
    lists: () => Promise.resolve([list]),
    stage: () => Promise.reject(new Error('not needed')),
    proxy: {},
    offline: false,
    log: pino({ level: 'silent' }),
    now: Date.now,
    isAffected: () => true,
  });
  process.stdout.write(`${file}\n`);
  await refresh.run({ signal: new AbortController().signal, say: () => undefined });
}
