import { Tokens } from '../../../src/accounts/tokens.ts';
import { openDatabase } from '../../../src/database/database.ts';
import type { Call, Result } from './tokens-elsewhere.ts';

// Opens the tokens of a database. Each message calls one of their methods, with the clock set to the time in the message.

const [url = ''] = process.argv.slice(2);
const clock = { now: 0 };
const tokens = new Tokens(await openDatabase(url), () => clock.now);

async function call({ now, method, values }: Call): Promise<Result> {
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

process.on('message', (message: Call) => {
  void call(message).then((result) => process.send!({ ...result, id: message.id }));
});
process.on('disconnect', () => process.exit());
process.send!({ id: 0 });
