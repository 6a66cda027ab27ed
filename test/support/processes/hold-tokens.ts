import { Tokens } from '../../../src/accounts/tokens.ts';
import { openDatabase } from '../../../src/database/database.ts';
import type { Asked, Told } from './tokens-elsewhere.ts';

// A process with the tokens of a database. Each message calls a method of them, at the time that the message gives.

const [url = ''] = process.argv.slice(2);
const clock = { now: 0 };
const tokens = new Tokens(await openDatabase(url), () => clock.now);

async function call({ now, method, values }: Asked): Promise<Told> {
  clock.now = now;
  const methods: Record<string, (...values: any[]) => Promise<unknown>> = {
    verify: (value) => tokens.verify(value),
    revoke: (account, id) => tokens.revoke(account, id),
    list: (account, limit) => tokens.list(account, limit),
    bootstrap: (account, value) => tokens.bootstrap(account, value),
  };
  try {
    return { value: await methods[method]!(...values) };
  } catch (error) {
    return { error: String(error) };
  }
}

process.on('message', (asked: Asked) => {
  void call(asked).then((told) => process.send!({ ...told, id: asked.id }));
});
process.on('disconnect', () => process.exit());
process.send!({ id: 0 });
