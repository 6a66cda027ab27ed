import { InvalidArgumentError, type Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import { attemptItem, deliveryItem } from '../webhooks/delivery.ts';
import { webhookItem } from '../webhooks/webhook.ts';
import { timeOption } from './audit.ts';
import { withAccount, type Terminal } from './with-installation.ts';

interface AccountOption {
  account: string;
}

interface CreateOptions extends AccountOption {
  url: string;
  events: string;
  operate?: boolean;
}

interface ChangeOptions extends AccountOption {
  url?: string;
  events?: string;
  enable?: boolean;
  disable?: boolean;
  rotateSecret?: boolean;
}

interface DeliveriesOptions extends AccountOption {
  limit: number;
}

interface RedeliverOptions extends AccountOption {
  since?: string;
}

const maxList = 10_000;

/** `entrepot webhook`. Results are JSON lines, as in `/v1/webhooks`. */
export function addWebhook(program: Command, environment: Environment, terminal: Terminal): void {
  const webhook = program.command('webhook').description('send events to URLs');
  const add = (name: string, description: string) =>
    webhook
      .command(name)
      .description(description)
      .option('--account <name>', 'the account that it belongs to', 'default');
  const print = (item: object) => void terminal.stdout.write(`${JSON.stringify(item)}\n`);

  add('create', 'create a webhook, and print it with its secret, which is shown only now')
    .requiredOption('--url <url>', 'the address that gets the events; https is recommended')
    .option('--events <list>', 'types of events, such as package.published,image.*', '*')
    .option('--operate', 'also send events that concern no account, such as upstream.opened')
    .action(({ account, url, events, operate = false }: CreateOptions) =>
      withAccount(
        environment,
        account,
        async (id, { webhooks: { webhooks } }) => {
          const created = await webhooks.create(id, { url, events: listIn(events), operate });
          print({ ...webhookItem(created.webhook), secret: created.secret });
        },
        { creates: true },
      ),
    );
  add('list', 'list the webhooks of an account').action(({ account }: AccountOption) =>
    withAccount(environment, account, async (id, { webhooks: { webhooks } }) => {
      for (const each of await webhooks.list(id, maxList)) print(webhookItem(each));
    }),
  );
  add('change <id>', 'change a webhook, and print it')
    .option('--url <url>', 'the new address')
    .option('--events <list>', 'the new types of events')
    .option('--enable', 'send events again')
    .option('--disable', 'send nothing')
    .option('--rotate-secret', 'make a new secret, and print it; for a day, requests are signed with both')
    .action((webhookId: string, { account, url, events, enable, disable, rotateSecret }: ChangeOptions) =>
      withAccount(environment, account, async (id, { webhooks: { webhooks } }) => {
        if (enable && disable) throw new DomainError('Invalid', 'Use only one of --enable and --disable.');
        const enabled = enable ? true : disable ? false : undefined;
        const change = { url, events: events === undefined ? undefined : listIn(events), enabled, rotateSecret };
        const { webhook: changed, secret } = await webhooks.change(id, webhookId, change);
        print({ ...webhookItem(changed), ...(secret !== undefined && { secret }) });
      }),
    );
  add('delete <id>', 'delete a webhook and its deliveries').action((webhookId: string, { account }: AccountOption) =>
    withAccount(environment, account, (id, { webhooks: { webhooks } }) => webhooks.delete(id, webhookId)),
  );
  add(
    'test <id>',
    'send a test event with the settings and the network of this command, and print the result; fails if the receiver does',
  ).action((webhookId: string, { account }: AccountOption) =>
    withAccount(environment, account, async (accountNumber, { core: { config }, webhooks }) => {
      await webhooks.webhooks.get(accountNumber, webhookId);
      const allowed = JSON.stringify(config.webhooks.allow);
      terminal.stderr.write(
        `note: this command sends the test, with its own settings (webhooks.allow: ${allowed}) and network. To let the running server send it, use "Send a test" in the console, or POST /v1/webhooks/${webhookId}/test\n`,
      );
      const { id, attempt } = await webhooks.test(accountNumber, account, webhookId);
      print({ id, ...attemptItem(id, attempt) });
      if (attempt.failure !== null) throw new DomainError('Invalid', `The test failed: ${attempt.failure}`);
    }),
  );
  add('deliveries <id>', 'list deliveries with their last attempts, the latest first')
    .option('--limit <number>', 'the number of deliveries', numberIn, 50)
    .action((webhookId: string, { account, limit }: DeliveriesOptions) =>
      withAccount(environment, account, async (id, { webhooks: { webhooks } }) => {
        for (const each of await webhooks.deliveries(id, webhookId, limit)) print(deliveryItem(each));
      }),
    );
  add('redeliver <id> [delivery]', 'let the server send a delivery again, or all since a time')
    .option('--since <time>', 'all since this time, such as 2027-01-31T12:00:00Z, or within a duration, such as 1d')
    .action((webhookId: string, delivery: string | undefined, { account, since }: RedeliverOptions) =>
      withAccount(environment, account, async (id, { webhooks: { webhooks } }) => {
        const time = timeOption(since, '--since');
        if ((delivery === undefined) === (time === undefined)) {
          throw new DomainError('Invalid', 'Give the ID of a delivery, or --since with a time.');
        }
        if (delivery !== undefined) print(deliveryItem(await webhooks.redeliver(id, webhookId, delivery)));
        else print({ deliveries: await webhooks.redeliverSince(id, webhookId, time!) });
      }),
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
