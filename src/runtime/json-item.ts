type Snake<Name extends string> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `_${Lowercase<First>}`}${Snake<Rest>}`
  : '';

/** The fields of `Row` as `/v1` and the commands name them. A field whose name ends with `At` is a time. */
type Item<Row> = {
  [Name in keyof Row & string as Snake<Name>]: Name extends `${string}At`
    ? null extends Row[Name]
      ? string | null
      : string
    : Row[Name];
};

/** `row` with names such as `created_at`, and times in RFC 3339. Times of a row are milliseconds since 1970. */
export function jsonItem<Row extends object>(row: Row): Item<Row> {
  const fields = Object.entries(row).map(([name, value]) => [
    name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    name.endsWith('At') && typeof value === 'number' ? new Date(value).toISOString() : value,
  ]);
  return Object.fromEntries(fields) as Item<Row>;
}
