import { InvalidArgumentError, type Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import { attemptItem, deliveryItem } from '../webhooks/delivery.ts';
import { webhookItem } from '../webhooks/webhook.ts';
import { timeOption } from './audit.ts';
import { addPatternOptions, patternsIn, type PatternOptions } from './patterns.ts';
import { forAccount, type Terminal } from './with-installation.ts';

interface CreateOptions extends PatternOptions {
  name?: string;
  url: string;
  events: string;
  operate?: boolean;
}

interface ChangeOptions extends PatternOptions {
  allNames?: boolean;
  name?: string;
  url?: string;
  events?: string;
  enable?: boolean;
  disable?: boolean;
  rotateSecret?: boolean;
}

const maxList = 10_000;

/** `entrepot webhook`. Results are JSON lines, as in `/v1/webhooks`. */
export function addWebhook(program: Command, environment: Environment, terminal: Terminal): void {
  const webhook = program.command('webhook').description('send events to URLs');
  const add = (name: string, description: string) => webhook.command(name).description(description);
  const print = (item: object) => void terminal.stdout.write(`${JSON.stringify(item)}\n`);

  forAccount<CreateOptions>(
    addPatternOptions(
      add('create', 'create a webhook, and print it with its secret, which is shown only now'),
      'its events',
    )
      .requiredOption('--url <url>', 'the address that gets the events; https is recommended')
      .option('--name <name>', 'what it is for, such as "chat of the team"')
      .option('--events <list>', 'types of events, such as package.published,image.*', '*')
      .option('--operate', 'also send events that concern no account, such as upstream.opened'),
    environment,
    async (account, { webhooks: { webhooks } }, { name, url, events, operate = false, ...names }) => {
      const created = await webhooks.create(account, {
        name,
        url,
        events: listIn(events),
        patterns: patternsIn(names),
        operate,
      });
      print({ ...webhookItem(created.webhook), secret: created.secret });
    },
    { creates: true },
  );
  forAccount(
    add('list', 'list the webhooks of an account'),
    environment,
    async (account, { webhooks: { webhooks } }) => {
      for (const each of await webhooks.list(account, maxList)) print(webhookItem(each));
    },
  );
  forAccount<ChangeOptions>(
    addPatternOptions(add('change <id>', 'change a webhook, and print it'), 'its events')
      .option('--all-names', 'send events about all names again')
      .option('--name <name>', 'the new name')
      .option('--url <url>', 'the new address')
      .option('--events <list>', 'the new types of events')
      .option('--enable', 'send events again')
      .option('--disable', 'send nothing')
      .option('--rotate-secret', 'make a new secret, and print it; for a day, requests are signed with both'),
    environment,
    async (
      account,
      { webhooks: { webhooks } },
      { name, url, events, enable, disable, rotateSecret, allNames, ...names },
      id,
    ) => {
      if (enable && disable) throw new DomainError('Invalid', 'Use only one of --enable and --disable.');
      const enabled = enable ? true : disable ? false : undefined;
      const types = events === undefined ? undefined : listIn(events);
      const patterns = allNames ? null : patternsIn(names);
      const change = { name, url, events: types, patterns, enabled, rotateSecret };
      const { webhook: changed, secret } = await webhooks.change(account, id!, change);
      print({ ...webhookItem(changed), ...(secret !== undefined && { secret }) });
    },
  );
  forAccount(
    add('delete <id>', 'delete a webhook and its deliveries'),
    environment,
    (account, { webhooks: { webhooks } }, _options, id) => webhooks.delete(account, id!),
  );
  forAccount(
    add(
      'test <id>',
      'send a test event with the settings and the network of this command, and print the result; fails if the receiver does',
    ),
    environment,
    async (accountNumber, { core: { config }, webhooks }, { account }, webhookId) => {
      await webhooks.webhooks.get(accountNumber, webhookId!);
      const allowed = JSON.stringify(config.webhooks.allow);
      terminal.stderr.write(
        `note: this command sends the test, with its own settings (webhooks.allow: ${allowed}) and network. To let the running server send it, use "Send a test" in the console, or POST /v1/webhooks/${webhookId}/test\n`,
      );
      const { id, attempt } = await webhooks.test(accountNumber, account, webhookId!);
      print({ id, ...attemptItem(id, attempt) });
      if (attempt.failure !== null) throw new DomainError('Invalid', `The test failed: ${attempt.failure}`);
    },
  );
  forAccount<{ limit: number }>(
    add('deliveries <id>', 'list deliveries with their last attempts, the latest first').option(
      '--limit <number>',
      'the number of deliveries',
      numberIn,
      50,
    ),
    environment,
    async (account, { webhooks: { webhooks } }, { limit }, id) => {
      for (const each of await webhooks.deliveries(account, id!, limit)) print(deliveryItem(each));
    },
  );
  forAccount<{ since?: string }>(
    add('redeliver <id> [delivery]', 'let the server send a delivery again, or all since a time').option(
      '--since <time>',
      'all since this time, such as 2027-01-31T12:00:00Z, or within a duration, such as 1d',
    ),
    environment,
    async (account, { webhooks: { webhooks } }, { since }, id, delivery) => {
      const time = timeOption(since, '--since');
      if ((delivery === undefined) === (time === undefined)) {
        throw new DomainError('Invalid', 'Give the ID of a delivery, or --since with a time.');
      }
      if (delivery !== undefined) print(deliveryItem(await webhooks.redeliver(account, id!, delivery)));
      else print({ deliveries: await webhooks.redeliverSince(account, id!, time!) });
    },
  );
}

function listIn(text: string): string[] {
  return text.split(',').map((each) => each.trim());
}

function numberIn(text: string): number {
  const number = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (number >= 1 && number <= maxList) return number;
  throw new InvalidArgumentError(`expected a number from 1 to ${maxList}`);
}
