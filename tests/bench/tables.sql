-- A table with an index, filled, changed, joined and grouped, in memory.
create table item (id integer primary key, part integer, name text, weight real);
with recursive number(n) as (select 1 union all select n + 1 from number where n < 120000)
insert into item select n, n * 7919 % 1009, 'item ' || (n * 31 % 65537) || substr('abcdefghijklmnopqrstuvwxyz', 1, n % 26), n * 0.5 from number;
create index item_name on item (name);
create index item_part on item (part, weight);
update item set name = name || ' changed' where part % 5 = 0;
select count(*), sum(length(name)) from item where name like 'item 1%';
select part, count(*), group_concat(substr(name, 1, 8), ',') from item group by part having count(*) > 118 limit 20;
select count(*) from item a join item b on a.part = b.part and a.id < b.id and a.id % 40 = 0;
delete from item where id % 3 = 0;
select count(*) from (select distinct substr(name, 1, 9) from item);
